"""What a paper prints: the LaTeX table with effects and verdicts, and the forest plot."""

import math
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import pytest

import ablation
from ablation.cli.main import main
from ablation.contract.errors import ConfigError, TrackerError
from ablation.judge.verdicts import judge_study
from ablation.show.answer import interval_of
from ablation.show.figures import forest, render_figures
from ablation.show.forest import COLUMN_WIDTH, forest_rows
from ablation.show.paper import MARKS
from ablation.show.table_files import render_tables
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.simulate import DEBIAS, Study, simulate

BETTER = {"v0": 0.2, "v1": 0.05, "v2": 0.35, "v3": 0.2}
FAN = {"v0": (None, {}), **{f"v{n}": ("v0", {"a.b_c": (0, n)}) for n in (1, 2, 3)}}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    fan = Study("fan", variant_tree=FAN, seeds=5, distances=BETTER, states={("v3", 1): "failed"})
    simulate(folder, [fan, Study("tree", variant_tree=DEBIAS, seeds=3)])
    collect(folder)
    return folder


@pytest.fixture(scope="module")
def tables(results, tmp_path_factory):
    """The tables of `results`, and of a long study and one without a comparison."""
    render_tables(results / DATABASE, results / "reports")
    others = tmp_path_factory.mktemp("others")
    many = {"v0": (None, {}), **{f"v{n}": ("v0", {"x": (0, n)}) for n in range(1, 60)}}
    simulate(others, [Study("many", variant_tree=many, seeds=2), Study("alone", variants=1)])
    collect(others)
    render_tables(others / DATABASE, results / "reports")
    with Store(others / DATABASE) as store, pytest.raises(TrackerError, match="alone: no variant is compared"):
        forest(store, "alone")
    return results / "reports"


def judged(results, study):
    with Store(results / DATABASE) as store:
        return judge_study(store, study)


def test_a_row_has_change_value_effect_interval_and_mark(results, tables):
    text = (tables / "fan/table.tex").read_text()
    rows = {
        line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")
        for line in text.splitlines()
        if line.startswith("v")
    }
    heads = rows.pop("variant")
    assert heads[:5] == ["variant", "change", "mean distance", "effect", "interval"]
    assert heads[-1] == "seeds"  # v3 lacks one
    assert rows["v0"][3:6] == ["", "", ""]
    for comparison in judged(results, "fan").comparisons:
        row, (low, high) = rows[comparison.child], interval_of(comparison)
        assert float(row[3].strip("$")) == pytest.approx(comparison.effect, abs=5e-4)
        ends = [float(end) for end in row[4].strip("$[]").split(",")]
        assert ends == pytest.approx([low, high], abs=1e-3)  # rounded outwards
        assert row[5] == MARKS[comparison.verdict]
    assert {rows[name][5] for name in ("v1", "v2")} == {"$+$", "$-$"}
    assert rows["v3"][6] == "4/5"
    assert r"a.\allowbreak{}b\_\allowbreak{}c 0 $\to$ 1" in rows["v1"][1]
    caption = re.search(r"\\caption\{(.*)\}", text)[1]
    assert "from v0, above 0 if better, with the 95\\% interval for all 2 comparisons at once (Holm)" in caption
    assert "$+$ better, $-$ worse" in caption
    assert r"% v3, seed 1: failed" in text


def test_a_tree_names_the_parent_and_a_long_study_is_split(tables):
    tree = (tables / "tree/table.tex").read_text()
    assert "& vs. &" in tree
    assert re.search(r"^v8\.1 & .* & v8 & ", tree, re.MULTILINE)
    many = (tables / "many/table.tex").read_text()
    assert many.count(r"\begin{table}") == 2
    assert r"\label{tab:many}" in many
    assert r"\label{tab:many-2}" in many
    assert len(re.findall(r"^v\d+ & ", many, re.MULTILINE)) == 60
    assert "2 seeds per variant" in many


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("study", ["fan", "tree", "many", "alone"])
def test_the_document_compiles_with_the_packages_that_the_table_names(results, tables, study):
    render_figures(results / DATABASE, tables, ("pdf",))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    wide = {**os.environ, "max_print_line": "1000"}
    done = subprocess.run(command, cwd=tables / study, env=wide, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert (tables / study / "table.tex").read_text().splitlines()[0].removeprefix("% ") in (
        tables / study / "paper.tex"
    ).read_text()
    assert ("forest.pdf" in done.stdout) == (study in ("fan", "tree"))


def test_the_rows_of_a_forest_plot(results):
    study = judged(results, "tree")
    rows = forest_rows(study)
    for row, comparison in zip(rows, study.comparisons, strict=True):
        assert row.name == f"{comparison.child} vs. {comparison.parent}"
        assert (row.effect, row.low, row.high) == pytest.approx(
            (comparison.effect, *interval_of(comparison)), nan_ok=True
        )
    long = [variant.model_copy(update={"label": "w" * 50}) for variant in study.measurements.variants]
    [cut, *_] = forest_rows(replace(study, measurements=replace(study.measurements, variants=long)))
    assert re.fullmatch(rf"w+… vs\. {study.comparisons[0].parent}", cut.name)
    effects = [row.effect for row in forest_rows(study, order="effect")]
    assert effects == sorted(effects, reverse=True)
    since = {row.name: row for row in forest_rows(study, "root")}
    assert since["v8.1"].low == next(each.root_low for each in study.comparisons if each.child == "v8.1")
    assert {row.verdict for row in since.values()} == {""}


def test_a_forest_plot_is_a_column_wide_and_names_the_metric(results):
    with Store(results / DATABASE) as store:
        figure = forest(store, "fan", order="effect")
    (axes,) = figure.axes
    assert figure.get_size_inches()[0] == COLUMN_WIDTH
    assert axes.get_title() == ""
    said = " ".join(figure.get_supxlabel().split())
    assert said == "mean distance: difference from v0, above 0 if better, with the 95% interval for all 2 at once"
    drawn = figure.get_tightbbox()  # inches: nothing is cut off
    assert drawn.x0 >= 0
    assert drawn.x1 <= COLUMN_WIDTH
    assert axes.get_yticklabels()[0].get_text() == "v1"
    assert {text.get_text() for text in figure.legends[0].get_texts()} >= {"better", "worse"}
    margin = judged(results, "fan").measurements.analysis.margin
    (band,) = axes.patches
    assert band.get_extents().transformed(axes.transData.inverted()).intervalx == pytest.approx([-margin, margin])


def test_files_have_that_size_and_a_style_sheet_counts(results, tmp_path):
    style = tmp_path / "mine.mplstyle"
    style.write_text("figure.figsize: 5, 3\nfont.size: 11\n")
    for name, words, points in (("plain", (), 72 * COLUMN_WIDTH), ("styled", (style,), 360)):
        render_figures(results / DATABASE, tmp_path / name, ("svg", "pdf"), *words)
        width = ET.parse(tmp_path / name / "fan/forest.svg").getroot().get("width")
        assert math.isclose(float(width.removesuffix("pt")), points, abs_tol=1)
        assert b"/FontFile2" in (tmp_path / name / "fan/forest.pdf").read_bytes()
        assert b"/Type3" not in (tmp_path / name / "fan/forest.pdf").read_bytes()
    style.write_text("font.size: many\n")
    with pytest.raises(ConfigError, match=r"--style = .*mine\.mplstyle.*cannot be read"):
        render_figures(results / DATABASE, tmp_path / "no", ("svg",), style)
    before = dict(mpl.rcParams)
    assert main(["figures", "--results", str(results), "--reports", str(tmp_path / "cli"), "--against", "root"]) == 0
    assert dict(mpl.rcParams) == before


def test_paired_seeds_are_joined_from_row_to_row(results):
    from ablation.show.figure_kinds import draw_metric
    from ablation.show.tables import build_table

    with Store(results / DATABASE) as store:
        table, analysis = build_table(store, "fan"), store.study("fan").analysis
    lines = [line for line in draw_metric(table, analysis).axes[0].lines if list(line.get_ydata()) == [0, 1, 2, 3]]
    assert len(lines) == 5
    independent = analysis.model_copy(update={"seeds": "independent"})
    lines = [line for line in draw_metric(table, independent).axes[0].lines if list(line.get_ydata()) == [0, 1, 2, 3]]
    assert lines == []


def test_a_notebook_gets_the_axes(results):
    with ablation.open(results) as opened:
        axes = opened.forest("fan", order="effect")
        assert axes.get_yticklabels()[0].get_text() == "v1"
        with pytest.raises(ConfigError, match="fn"):
            opened.forest("fn")
