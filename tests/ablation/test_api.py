"""From Python: the page and the notebook run, and what they give is what the commands print."""

import itertools
import json
import pickle
import re
import shlex
import shutil
import subprocess
import sys

import nbformat
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest, ttest_ind

import ablation
from ablation.readers import tabular
from tests.ablation.readers.samples import write_group
from tests.ablation.typed import output
from tests.repository import ROOT
from tests.simulate import DEBIAS, Study, simulate


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    simulate(folder / "results", [Study("debias", variant_tree=DEBIAS, seeds=3), Study("other", variant_tree=DEBIAS)])
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


@pytest.fixture(autouse=True)
def here(project, monkeypatch):
    monkeypatch.chdir(project)


def test_the_page_runs_and_names_everything():
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"^((?:    .*\n)+)", page, flags=re.MULTILINE) if "{" not in block]
    names = {}
    exec("".join(line[4:] for block in blocks for line in block.splitlines(keepends=True)), names)
    assert isinstance(names["verdict"], ablation.Verdict)
    public = {name for name in vars(ablation.Results) if not name.startswith("_")} | set(ablation.__all__)
    assert {name for name in public if name not in page} == {"Results"}
    assert len(page.splitlines()) <= 86


def test_the_notebook_runs(monkeypatch):
    monkeypatch.chdir("examples")
    notebook = nbformat.read("notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    names, shown = {}, []
    for cell in (cell.source for cell in notebook.cells if cell.cell_type == "code"):
        if cell.startswith("!ablation"):
            subprocess.run(
                [sys.executable, "-m", *shlex.split(cell[1:].replace("\\\n", ""))],
                check=True,
                env={"PYTHONPATH": str(ROOT)},
            )
            continue
        *start, last = cell.split("\n")
        exec("\n".join(start), names)
        shown.append(eval(last, names)._repr_html_())
    assert [re.findall("<strong[^>]*>(.*?)<", html) for html in shown if "<strong" in html] == [["better"]] * 3
    names["results"].close()


def test_frames_are_those_of_the_commands(capsys):
    with ablation.open() as results:
        frame, metrics, arrow = results.verdicts("debias"), results.metrics("debias"), results.arrow("FROM results")
        assert results.studies == ["debias", "other"]
        found = results.diff("v4", "v8", study="debias")
        sizes = results.power("debias", 0.02, "v8", seeds=5, items=[20, 40])
        assert set(results.items("debias")["variant"]) == set(DEBIAS)
        assert "<svg" in found._repr_html_()
        for mistake in (lambda: results.diff("v4", "v8"), lambda: results.verdicts("no"), lambda: results.sql("selec")):
            with pytest.raises(ablation.TrackerError):
                mistake()
    rows = json.loads(output(capsys, "verdicts", "debias", "--json"))["rows"]
    assert frame["effect"].tolist() == [row["effect"] for row in rows]
    words = ["power", "debias", "v8", "--effect", "0.02", "--seeds", "5", "--items", "20", "40", "--json"]
    assert sizes["effect"].tolist() == [row["effect"] for row in json.loads(output(capsys, *words))["rows"]]
    assert (len(metrics), arrow.num_rows) == (len(DEBIAS) * 3 * 10, len(DEBIAS) * 5 * 10)
    assert {change["key"] for change in found.changes} == {"rcs.mode", "rcs.alphas"}
    assert found.effect == pytest.approx(frame.set_index("child")["effect"]["v8"])


def test_paths_frames_and_arrays_are_one_comparison(tmp_path):
    rng = np.random.default_rng(1)
    groups = [(rng.random((3, 50)) < rate).astype(float) for rate in (0.5, 0.8)]
    frames = [
        pd.DataFrame({"item": np.tile(np.arange(50), 3), "seed": np.repeat(range(3), 50), "value": group.ravel()})
        for group in groups
    ]
    for name, frame in zip("ab", frames, strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    found = [
        ablation.compare(tmp_path / "a.csv", [str(tmp_path / "b.csv")]),
        ablation.compare(*frames),
        ablation.compare(*map(pa.Table.from_pandas, frames)),
        ablation.compare(*groups),
        ablation.judge(groups[1], groups[0], [f"q{i:02}" for i in range(50)]),
    ]
    assert len({(verdict.effect, verdict.low, verdict.verdict) for verdict in found}) == 1
    assert found[0].effect == pytest.approx(groups[1].mean() - groups[0].mean())
    assert {(verdict.parent, verdict.child) for verdict in found[1:4]} == {("baseline", "candidate")}
    assert ablation.judge(groups[1][0], groups[0][0]).row["seeds"] == 1
    base, new = (pd.Series(group[0], [f"q{i:02}" for i in range(50)]) for group in groups)
    by_index = ablation.compare(base, new[::-1])  # a Series is paired by its index
    assert by_index.effect == pytest.approx(groups[1][0].mean() - groups[0][0].mean())
    assert by_index.p == pytest.approx(ablation.compare(groups[0][0], groups[1][0]).p)
    assert ablation.judge(*groups, direction={"target": 0.6}).direction == {"target": 0.6}
    together = ablation.judge(groups[1], groups[0], clusters=np.arange(50) // 5)
    assert together.low != found[0].low
    named = ablation.judge(*groups, metric="acc", pass_at=1)
    assert (named.metric, named.effect) == ("pass@1 of acc", pytest.approx(-found[0].effect))


def test_a_verdict_read_in_any_order_or_copied_is_the_same():
    rng = np.random.default_rng(0)
    groups = rng.random((2, 4, 60))
    whole, parts = (ablation.judge(*groups, direction="max", margin=0.1) for _ in range(2))
    groups[:] = 0.0  # the arrays are the caller's again
    copied = pickle.loads(pickle.dumps(parts))
    assert {name: getattr(parts, name) for name in parts.row} == parts.row == whole.row
    assert whole == copied
    assert (copied.mde, str(copied)) == (whole.row["mde"], whole.text)
    with pytest.raises(AttributeError, match="has no attribute 'medi'"):
        _ = copied.medi


def test_logarithms_do_not_depend_on_the_unit():
    """Between 1 and e, logarithms lie between 0 and 1, but they are no shares."""
    rng = np.random.default_rng(0)
    latency = np.exp(rng.uniform(0.1, 0.9, 300) + rng.normal(0, 0.01, (2, 5, 300)) - np.array([0.02, 0])[:, None, None])
    options = {"transform": "log", "direction": "min", "margin": 0.01}
    one, other = (ablation.judge(*(scale * latency), **options) for scale in (1.0, 1000.0))
    assert (one.verdict, one.p) == (other.verdict, pytest.approx(other.p)) == ("better", pytest.approx(one.p))


def test_a_verdict_can_be_read_after_its_files_are_gone(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        frame = pd.DataFrame({"item": range(30), "value": rng.normal(size=30), "prompt": "?"})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    verdict = ablation.compare(str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), direction="max")
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").unlink()
    assert "best" in verdict.text
    assert len(verdict.best) == 3


def test_arrays_and_frames_are_judged_without_files(monkeypatch):
    """Writing and reading files took nine tenths of the time of a call."""

    def refuse(*words, **options):
        raise AssertionError("a file")

    for module, name in ((pq, "write_table"), (pq, "ParquetFile"), (tabular, "query")):
        monkeypatch.setattr(module, name, refuse)
    rng = np.random.default_rng(3)
    values = (rng.random((2, 3, 20, 4)) < 0.5).astype(float)
    found = ablation.judge(values[0], values[1], pass_at=2)
    wrong = 4 * (1 - values.mean(axis=-1))  # of four samples; both of two drawn ones with the chance C(wrong, 2) / 6
    right = 1 - wrong * (wrong - 1) / 12
    assert found.effect == pytest.approx(float(right[0].mean() - right[1].mean()))
    frames = [pd.DataFrame({"item": range(20), "value": side[0, :, 0], "prompt": "?"}) for side in values]
    assert ablation.compare(*frames).effect == pytest.approx(values[1, 0, :, 0].mean() - values[0, 0, :, 0].mean())


@pytest.mark.parametrize(
    ("child", "options", "words"),
    [
        (np.array([[1, np.nan]]), {}, "item 1 has no finite value"),
        (np.zeros((1, 2)), {"items": ["a", "a"]}, "item = 'a': occurs 2 times"),
        (np.zeros((1, 2)), {"items": ["a"]}, "items: has length 1, but the number of items is 2"),
        (np.zeros((1, 2)), {"cluster": "doc.x"}, "does not apply to arrays"),
        (np.zeros((1, 2, 1, 1)), {}, "is not a valid shape"),
    ],
)
def test_an_array_that_cannot_be_judged_is_refused(child, options, words):
    with pytest.raises(ablation.TrackerError, match=re.escape(words)):
        ablation.judge(child, np.zeros(child.shape), **options)


def contest(record):
    """Losses [runs, 1] of a record's runs, at 3,000 steps by the maintainers' slope."""
    table = pd.read_csv(ROOT / "benchmarks/evidence/speedrun/runs.csv").sort_values("step", kind="stable")
    last = table[table["record"] == record].groupby("run").last()
    return (last["val_loss"] + 0.0045 * (last["step"] - 3000) / 100).to_numpy()[:, None]


@pytest.mark.parametrize(("parent", "child"), [(30, 34), (9, 11)])
def test_runs_that_share_nothing_are_judged_whole_and_in_any_order(parent, child):
    """Runs of a contest that set no seeds: paired by number, the order of the files decides the verdict."""
    rng, found = np.random.default_rng(0), []
    for _ in range(3):
        groups = [rng.permutation(contest(record)) for record in (child, parent)]
        found.append(ablation.judge(*groups, seeds="independent", direction="min", margin=0.0005))
    assert {verdict.verdict for verdict in found} == {"undecided"}
    assert [verdict.p for verdict in found] == pytest.approx([found[0].p] * 3)
    assert found[0].runs == [len(group) for group in groups]
    known = ttest_ind(*(group[:, 0] for group in groups), equal_var=False).pvalue
    assert found[0].p == pytest.approx(known, rel=0.35)  # Satterthwaite's degrees of freedom, bounded


def test_the_order_of_rows_and_tasks_decides_nothing():
    """Losses of two checkpoints, whose p draws items."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"subset": np.repeat(["x", "y"], 30), "item": np.tile(range(30), 2), "value": rng.gamma(1, size=60)}
    )
    new = frame.assign(value=frame["value"] * rng.gamma(9, 0.13, 60))
    found = [ablation.compare(base, new, margin=1, direction="min") for base in (frame, frame[::-1])]
    assert found[0].p == found[1].p
    assert [task["subset"] for task in found[1].tasks] == ["x", "y"]


def test_two_checkpoints_are_judged_by_the_exact_test_of_mcnemar():
    values = {
        name: pd.read_csv(ROOT / f"benchmarks/evidence/gsm8k/gsm8k_{name}.csv")["value"].to_numpy()
        for name in ("175b_verification", "175b_finetuning")
    }
    verdict = ablation.judge(*values.values(), margin=0.01, direction="max")
    better, worse = (int((one > other).sum()) for one, other in itertools.permutations(values.values()))
    assert (verdict.verdict, verdict.claim) == ("better", "checkpoints")
    assert verdict.p == pytest.approx(binomtest(better, better + worse).pvalue)
    recipe = ablation.judge(*values.values(), margin=0.01, direction="max", claim="recipe")
    assert recipe.verdict == "undecided"
    assert "one run per side cannot show whether the recipe is" in recipe.reason


def test_a_verdict_is_a_record(capsys, tmp_path):
    groups = write_group(tmp_path / "base"), write_group(tmp_path / "new", gain=0.25)
    verdict = ablation.compare(*groups)
    printed = json.loads(output(capsys, "compare", groups[0], "--with", groups[1], "--json"))
    assert (printed["schema"], printed["rows"][0]) == (1, {n: v for n, v in verdict.row.items() if n != "notes"})
    assert str(verdict).startswith("new against base: better")
    with pytest.raises(AttributeError, match="has no attribute 'word'"):
        verdict.word  # noqa: B018


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: ablation.judge(a, a[:2]), "differs from parent.shape"),
        (lambda a: ablation.judge(a, a, ["x"]), "has length 1, but the number of items is 4"),
        (lambda a: ablation.judge(a, a, margin=-1), "is not a valid margin"),
        (lambda a: ablation.judge(a, a, alpha=0.7), "is not a valid level"),
        (lambda a: ablation.judge(a, a, names="abc"), "is not a pair of names"),
        (lambda a: ablation.judge(a[0, 0], a[0, 0]), "is not a valid shape"),
        (
            lambda a: ablation.compare(a, a * np.nan),
            "candidate: value = nan: item 0 and 3 more have no finite value",
        ),
        (lambda a: ablation.compare(a, a, alpha=2), "is not a valid level"),
        (lambda a: ablation.compare("nowhere", a), "no file has this name"),
        (lambda a: ablation.open("results").diff("v4", "v88", "debias"), "not in the same study; did you mean 'v8'?"),
    ],
)
def test_mistakes_are_one_line(call, said):
    with pytest.raises(ablation.TrackerError, match=re.escape(said)) as told:
        call(np.ones((3, 4)))
    assert "/tmp" not in str(told.value)
