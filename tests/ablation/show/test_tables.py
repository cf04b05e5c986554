"""Every cell of the tables, in every format, by hand; and nothing that a user wrote escapes its format."""

import csv
import io
import math
import shutil
import subprocess
from statistics import mean, stdev

import pandas as pd
import pytest

from ablation.show.methods import methods
from ablation.show.other_tables import group_table, keys_that_differ, subset_table
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.show.paper import latex
from ablation.show.table_files import render_tables, to_csv, to_html, to_latex, to_markdown
from ablation.show.tables import Cell, ComparisonColumn, ComparisonTable, Row, build_table
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.ablation.show.elements import unfolded
from tests.simulate import DEBIAS, Study, editing, simulate, stage_dir

HOSTILE = '<script>alert("x")</script> | $x_1$ & 50% #{\\} ~^ `a` *b* =1+1'


def table_of(results, *studies):
    """The table of the toy study, of results that are there or of simulated ones."""
    if studies:
        simulate(results, studies)
    collect(results)
    with Store(results / DATABASE) as store:
        return build_table(store, "toy")


def row_of(table, name):
    [row] = [row for row in table.rows if row.name == name]
    return row


def a_row(name="v1", *, values=((0.25, 0.75),), published=(None,), state="ok", reason="", seeds=2, changed="a 1 -> 2"):
    cells = tuple(Cell(v) for v in values)
    return Row(name, "v0", changed, False, cells, published, seeds, 2, state, reason)


RATE = ComparisonColumn("rate", "edited/mean/rate", None, 2)


def a_table(*rows, columns=(RATE,), title="T", notes=()):
    return ComparisonTable("s", title, "demo", "Scale: demo.", columns, rows, notes)


def test_a_cell_is_the_mean_and_the_sample_standard_deviation():
    cell = Cell((1.0, 2.0, 6.0))
    assert cell.mean == 3.0
    assert cell.sd == pytest.approx(math.sqrt(7.0))  # ((-2)^2 + (-1)^2 + 3^2) / 2
    assert Cell((0.1, 0.1, 0.1)).sd == 0.0
    assert Cell((0.5,)).sd is None
    assert Cell(()).mean is None
    assert Cell((1.0, math.nan)).mean is None
    assert Cell((1.0, math.inf)).failed


def test_rows_are_in_tree_order_after_the_reference_and_hold_the_results(results):
    table = table_of(results, Study(variant_tree=DEBIAS, seeds=3))
    names = [row.name for row in table.rows]
    assert names[0] == "unedited"
    assert names[1:] == list(DEBIAS)  # DEBIAS is written in tree order
    with Store(results / DATABASE) as store:
        frame = store.results("toy")
    for row in table.rows[1:]:
        for column, cell in zip(table.columns, row.cells, strict=True):
            hit = frame[(frame["variant"] == row.name) & (frame["metric"] == column.metric)]["value"].tolist()
            assert cell.mean == pytest.approx(mean(hit))
            assert cell.sd == pytest.approx(stdev(hit))
    assert row_of(table, "v8.1").changed == "rcs.alphas [0, 1, 2] -> [0, 1.2, 2.5]"
    assert row_of(table, "v3").changed.endswith("early_stop.patience none -> 5; n_epochs 10 -> 100")
    assert row_of(table, "v3").confounded
    assert not row_of(table, "v2").confounded  # three keys of one factor


def edit_metric(plan, variant, name, edit):
    """Change what the first run of a variant has measured."""
    path = stage_dir(plan, "toy", variant, 0, "evaluate") / "metrics.parquet"
    frame = pd.read_parquet(path)
    frame.loc[frame["name"] == name, "value"] = edit(frame["value"])
    frame.to_parquet(path, index=False)


def test_a_reference_that_differs_between_variants_is_noted(results):
    edit_metric(simulate(results), "v1", "unedited/gender/distance", lambda values: values + 0.1)
    [note] = table_of(results).notes
    assert note == "unedited: unedited/gender/distance differs between variants with the same seed; means are shown"


def test_failures_and_gaps_are_words(results):
    states = {("v1", s): "failed" for s in (0, 1)} | {("v2", 0): "diverged"} | {("v3", s): "missing" for s in (0, 1)}
    edit_metric(simulate(results, [Study(states=states)]), "v0", "edited/race/distance", lambda _: math.nan)
    table = table_of(results)
    assert row_of(table, "v1").status == "failed: RuntimeError: simulated failure"
    assert row_of(table, "v3").status == "not run"
    assert (row_of(table, "v2").seeds, row_of(table, "v2").planned) == (1, 2)
    assert set(table.notes) == {
        "v2, seed 0: diverged: train/m00 is not finite",
        "v0: edited/race/distance is not finite for at least one seed",
    }
    lines = to_markdown(table).splitlines()
    [v0] = [line for line in lines if line.startswith("| v0 ")]
    assert v0.split(" | ")[3] == "failed"
    assert "nan" not in v0


def test_digits_follow_the_spread_and_published_numbers_keep_theirs(results):
    published = {"v0": {"gender": 0.017, "mean": 0.0277}, "v1": {"gender": 0.0155}}
    table = table_of(results, Study(seeds=5, published=published))
    text = to_markdown(table)
    [v0] = [line for line in text.splitlines() if line.startswith("| v0 ")]
    cells = v0.strip("| ").split(" | ")
    value = row_of(table, "v0").cells[0]
    assert cells[2] == f"{value.mean:.3f} ± {value.sd:.3f}"
    assert "0.0170" in cells  # as precise as the other number of its column
    assert "0.0277" in cells
    assert table.columns[1].published is None  # race: nothing was published, so no empty column
    assert "published race" not in text


def test_a_change_is_in_percent_of_the_parents_mean_measured_and_published(results):
    """The source's change is the one that it prints: here 26%, where its rounded numbers give 25."""
    published = {"baseline": {"gender": 0.02}, "v1": {"gender": 0.015}, "v2": {"gender": 0.01}}
    claim = {"variant": "v1", "against": "baseline", "column": "gender", "percent": -26, "text": "better"}
    with editing(simulate(results, [Study(variant_tree=DEBIAS, seeds=3, published=published)])) as plan:
        plan["studies"][0]["table"]["columns"][0]["change"] = True
        plan["studies"][0]["published"]["claims"] = [claim]
    table = table_of(results)
    assert [column.label for column in table.columns[:3]] == ["gender", "gender, change in %", "race"]
    root, child = (row_of(table, name) for name in ("baseline", "v1"))
    assert (child.parent, root.cells[1].values, root.published[1]) == ("baseline", (), None)
    assert child.cells[1].mean == pytest.approx(100 * (child.cells[0].mean / root.cells[0].mean - 1))
    assert child.cells[1].sd == pytest.approx(100 * child.cells[0].sd / root.cells[0].mean)
    assert child.published[1] == -26
    assert row_of(table, "v2").published[1] is None  # it states no change
    [line] = [line for line in to_markdown(table).splitlines() if line.startswith("| v1 ")]
    assert line.split(" | ")[-2:] == ["0.015", "-26 |"]
    assert not table.notes
    with Store(results / DATABASE) as store:
        grouped = group_table(table, store.variants("toy"), "rcs.alphas")
    assert [column.label for column in grouped.columns] == ["gender", "race", "mean"]


def averaged(results, counts, **declared):
    """Write a plan whose variants v0, v1, ... measure so many policies each; return its table."""
    with editing(simulate(results, [Study(variants=len(counts))])) as plan:
        [study] = plan["studies"]
        study["table"]["means_over"] = {"key": "evaluate.checkpoints", "protocols": ["edited"]} | declared
        for variant, count in zip(study["variants"], counts, strict=True):
            variant["resolved"] |= {"evaluate": {"checkpoints": count}} if count else {}
    return table_of(results)


def test_numbers_that_are_means_over_the_last_policies_say_so(results):
    of = "of each run (evaluate.checkpoints)"
    table = averaged(results, [3, 3])
    others = "other values come only from the last of these."
    said = f"Values of edited are means over the last 3 policies {of}; {others}"
    assert said in table.caption
    assert all(said in shown(table) for shown in (to_markdown, to_html))
    with Store(results / DATABASE) as store:
        page = " ".join(draw(read_page(store)).split())
        assert page.count("A run&#39;s value is the mean over its last 3 policies (evaluate.checkpoints).") == 1
        for text in (subset_table(store, table).caption, methods(store, "toy")):
            assert "A run's value is the mean over its last 3 policies (evaluate.checkpoints)." in text
    assert "the last 1 to 3 students of each run" in averaged(results, [1, 3], of="students").caption
    for counts in ([1, 1], [None, None]):
        assert "policies" not in averaged(results, counts).caption


def test_what_the_tracker_says_of_a_run_is_a_note_in_table_and_report(results):
    plan = simulate(results)
    path = stage_dir(plan, "toy", "v1", 1, "train") / "metrics.parquet"
    names = ("memory/halvings", "memory/micro_batch")
    more = [(step, name, value) for step, value in ((3, 1.0), (9, 2.0)) for name in names]
    metrics = pd.concat([pd.read_parquet(path), pd.DataFrame(more, columns=["step", "name", "value"])])
    metrics.to_parquet(path, index=False)
    [note] = table_of(results).notes
    assert note.startswith("v1, seed 1: train: a device ran out of memory")
    with Store(results / DATABASE) as store:
        [event] = store.health("toy").to_dict("records")
        page = draw(read_page(store))
    assert (event["severity"], event["value"], event["first_step"], event["last_step"]) == ("note", 2.0, 3, 9)
    assert "v1 seed 1, train: <code>memory/halvings</code> reached 2" in unfolded(page)


def test_csv_has_full_precision_and_no_formula(results):
    formula = a_row("=cmd", values=((0.1, 0.2),), changed="-x 1 -> 2", reason="@boom")
    first, second = csv.DictReader(io.StringIO(to_csv(a_table(formula, a_row("v2", values=((0.7, -0.9),))))))
    assert [first[name] for name in ("variant", "changed", "reason")] == ["'=cmd", "'-x 1 -> 2", "'@boom"]
    assert float(first["rate mean"]) == mean((0.1, 0.2))
    assert float(first["rate sd"]) == pytest.approx(stdev((0.1, 0.2)), rel=1e-15)
    assert second["rate mean"].startswith("-0.1")  # a number stays a number


def test_runs_csv_has_a_row_per_run_and_metric(results, tmp_path):
    simulate(results, [Study(states={("v1", 0): "failed"})])
    collect(results)
    render_tables(results / DATABASE, tmp_path / "reports")
    frame = pd.read_csv(tmp_path / "reports" / "toy" / "runs.csv")
    with Store(results / DATABASE) as store:
        expected = store.results("toy")
    measured = frame.dropna(subset="metric").reset_index(drop=True)
    pd.testing.assert_frame_equal(measured[["variant", "seed", "metric", "value"]], expected, check_exact=True)
    [failed] = frame[frame["metric"].isna()].to_dict("records")
    assert (failed["variant"], failed["seed"], failed["state"]) == ("v1", 0, "failed")


def hostile_table():
    row = a_row(HOSTILE, changed=HOSTILE, published=(0.5,))
    failed = a_row("v2", changed=HOSTILE, state="failed", reason=HOSTILE, seeds=0)
    columns = (ComparisonColumn(HOSTILE, "m", "p", 2, 1),)
    return a_table(row, failed, columns=columns, title=HOSTILE, notes=(HOSTILE,))


@pytest.mark.parametrize("first", ["[2cm]x", "[", "*", "* [1]", " [x"])
def test_a_row_of_latex_that_begins_with_a_bracket_or_a_star_is_no_argument(first):
    r"""`\midrule [2cm]` is 2 cm thick, and `\\*` forbids a page break: TeX looks for both past spaces and newlines."""
    column = ComparisonColumn(first, "m", "p", 2, 1)
    table = a_table(a_row(first), a_row(first), columns=(column,), title=first, notes=(first,))
    for line in (line.lstrip() for line in to_latex(table).splitlines()):
        assert not line.startswith(("[", "*"))
    assert f"{{}}{first.strip()[0]}" in to_latex(table)


def test_latex_escapes_every_special_character():
    assert latex("a_b & 5% $x$ #1 {y} ~ ^ \\") == (
        r"a\_b \& 5\% \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert latex("1 -> 2 ± 0.1") == r"1 $\to$ 2 $\pm$ 0.1"
    assert latex("中\n…") == "? ..."


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(results, tmp_path):
    table = table_of(
        results, Study(variant_tree=DEBIAS, published={"v1": {"gender": 0.1}}, states={("v5", 0): "failed"})
    )
    with Store(results / DATABASE) as store:
        others = [subset_table(store, table), group_table(table, store.variants("toy"), "rcs.alphas")]
    body = "".join(map(to_latex, (table, hostile_table(), *others)))
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,graphicx,textcomp}\begin{document}"
    (tmp_path / "t.tex").write_text(head + body + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout  # no table is wider than the page


# ---- by the value of a key, and by subset

KEYS = {
    "v0": (None, {}),
    "v1": ("v0", {"loss.kind": ("a", "b"), "lr": (1, 2)}),
    "v2": ("v1", {"lr": (2, 3)}),
    "v3": ("v0", {"clip": (None, [0.1, 0.2])}),
}


def test_a_row_of_a_group_is_the_mean_over_variants_of_their_means_over_seeds(results, tmp_path):
    table = table_of(
        results, Study(variant_tree=KEYS, seeds=3, distances={"v1": 0.3, "v2": 0.4}, states={("v2", 1): "failed"})
    )
    with Store(results / DATABASE) as store:
        variants = store.variants("toy")
    assert keys_that_differ(variants) == ["loss.kind", "lr", "clip"]
    grouped = group_table(table, variants, "loss.kind")
    means = {row.name: row.cells[0].mean for row in table.rows}
    expected = {"a": [means["v0"], means["v3"]], "b": [means["v1"], means["v2"]]}  # v2 counts once, with two seeds too
    assert {row.name: row.cells[0].mean for row in grouped.rows} == pytest.approx(
        {value: mean(of) for value, of in expected.items()}
    )
    assert row_of(grouped, "b").cells[0].sd == pytest.approx(stdev(expected["b"]))
    assert [(row.changed, row.seeds) for row in grouped.rows] == [("v0, v3", 2), ("v1, v2", 2)]
    assert "mean over its seeds" in grouped.caption
    assert "not an effect of this key" in grouped.caption
    _, b = csv.DictReader(io.StringIO(to_csv(grouped)))
    assert (b["variants"], b["n"], float(b["gender mean"])) == ("v1, v2", "2", pytest.approx(mean(expected["b"])))
    assert "| loss.kind | variants | gender |" in to_markdown(grouped)
    assert r"\label{tab:toy-by-loss-kind}" in to_latex(grouped)
    assert [row.name for row in group_table(table, variants, "clip").rows] == ["none", "[0.1, 0.2]"]


def test_the_table_by_subset_has_the_mean_of_every_data_set(results):
    table = table_of(results, Study(variant_tree=KEYS, seeds=3, states={("v1", 2): "failed"}))
    with Store(results / DATABASE) as store:
        by_subset = subset_table(store, table)
        items = store.sql("SELECT variant, seed, i.* FROM finals f JOIN items i USING (key) WHERE protocol = 'edited'")
        shown = store.results("toy")
    assert [column.label for column in by_subset.columns] == ["gender", "race", "mean distance from 0.5"]
    for name in KEYS:
        row = row_of(by_subset, name)
        for index, subset in enumerate(("gender", "race")):
            of_run = items[(items["variant"] == name) & (items["subset"] == subset)].groupby("seed")["value"].mean()
            assert row.cells[index].values == pytest.approx(tuple(of_run))
        metric = shown[(shown["variant"] == name) & (shown["metric"] == "edited/mean/distance")]["value"]
        assert row.cells[2].mean == pytest.approx(metric.mean())
        assert row.seeds == (2 if name == "v1" else 3)
    assert "closer to 0.5 is better" in by_subset.caption
    assert r"\label{tab:toy-subsets}" in to_latex(by_subset)
    [v1] = [row for row in csv.DictReader(io.StringIO(to_csv(by_subset))) if row["variant"] == "v1"]
    assert (v1["gender n"], v1["seeds"], v1["planned"]) == ("2", "2", "3")
