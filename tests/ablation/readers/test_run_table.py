"""Runs in a table: what a column holds, wide and long, and what a table lacks. The answer in one try."""

import pytest

from ablation.contract.errors import ConfigError
from ablation.readers.run_table import read_runs, read_table
from tests.ablation.show.elements import unfolded
from tests.ablation.typed import output, refused

WIDE = "record,parent,run,step,loss\na,,0,10,2.0\na,,0,20,1.0\na,,1,20,1.1\nb,a,0,20,0.9\n"
LONG = "Method\tseed\tmetric\tscore\nbase\t1\tacc\t0.5\nbase\t1\tf1\t0.4\nnew\t1\tacc\t0.6\n"
ROWS = "config,lr,accuracy\nbase,0.1,0.5\nbase,0.1,0.6\nnew,0.2,0.7\nnew,0.2,0.8\n"


def table(tmp_path, text, suffix=".csv", **named):
    path = tmp_path / f"runs{suffix}"
    path.write_text(text)
    return read_table(path, named)


def rows(found):
    return {run.name: run.metrics.to_pylist() for run in found.imported()}


def test_wide_with_parents_and_steps(tmp_path):
    found = table(tmp_path, WIDE)
    assert found.roles == {"variant": "record", "parent": "parent", "run": "run", "step": "step"}
    assert found.parents == {"a": None, "b": "a"}
    assert rows(found)["a/0"] == [
        {"step": 10, "name": "loss", "value": 2.0},
        {"step": 20, "name": "loss", "value": 1.0},
    ]
    assert [run.seed for run in found.imported()] == [None, None, None]


def test_long_with_tabs_and_seeds(tmp_path):
    found = table(tmp_path, LONG, ".tsv")
    assert (found.roles["variant"], found.roles["value"], found.metrics) == ("Method", "score", ["acc", "f1"])
    assert rows(found)["base/1"] == [
        {"step": 0, "name": "acc", "value": 0.5},
        {"step": 0, "name": "f1", "value": 0.4},
    ]
    assert [run.seed for run in found.imported()] == [1, 1]


def test_a_row_for_each_run_and_settings_of_a_variant(tmp_path):
    found = table(tmp_path, ROWS)
    assert (found.metrics, found.settings) == (["accuracy"], ["lr"])
    assert list(rows(found)) == ["base/0", "base/1", "new/0", "new/1"]
    assert next(found.imported()).config == {"variant": "base", "lr": "0.1"}


def test_names_of_runs_are_variants_and_seeds_or_are_told_with_what_to_map(tmp_path):
    """As a table that W&B exports has them."""
    found = table(tmp_path, "Name,Tags,lr,loss\nbase-s0,,.1,2\nbase-s1,,.1,3\nfast-s0,,.3,4\n")
    assert [(run.name, run.seed) for run in found.imported()] == [("base/0", 0), ("base/1", 1), ("fast/0", 0)]
    assert (found.metrics, list(found.settings)) == (["loss"], ["Tags", "lr"])
    text = "Name,seed,lr,loss\nred-fox-1,0,.1,2\nblue-sky-2,1,.1,3\nbig-sun-3,0,.3,2\nold-sea-4,1,.3,4\n"
    assert table(tmp_path, text).groups == "lr"
    found = table(tmp_path, text, variant="lr")
    assert [(run.name, run.seed) for run in found.imported()] == [(".1/0", 0), (".1/1", 1), (".3/0", 0), (".3/1", 1)]
    assert found.groups == ""
    assert table(tmp_path, "Name,acc\na,1\nb,2\n").groups == ""
    runs = table(tmp_path, "Name,lr,loss\nrun1,.1,2\nrun2,.2,3\n").imported()
    assert [run.name for run in runs] == ["run1/0", "run2/0"]


def test_numbers_with_commas_and_signs_are_read_by_the_whole_column(tmp_path):
    found = table(tmp_path, "variant;seed;loss;acc\na;0;1,758;75,8%\na;1;0,5;80%\n")
    assert found.metrics == ["loss", "acc"]
    assert [value for run in found.runs for _, _, value in run.points] == [1.758, 0.758, 0.5, 0.8]


def test_a_metric_of_one_value_within_a_variant_is_named(tmp_path):
    text = "variant,seed,acc\na,0,.5\na,1,.5\nb,0,.6\nb,1,.6\n"
    with pytest.raises(ConfigError, match=r"no column whose numbers differ .* --map columns.value=COLUMN"):
        table(tmp_path, text)
    found = table(tmp_path, text, value="acc")
    assert (found.metrics, found.settings) == (["acc"], [])


SWEEP = "Name,State,algo,beta,seed,acc\na1,finished,grpo,0,1,.5\na2,crashed,grpo,0,2,.1\na3,,grpo,.1,1,.6\n"


def test_a_run_that_did_not_end_well_is_none_that_did(tmp_path):
    """States are W&B's and MLflow's words; a column with other words says something else."""
    states = [run.state for run in table(tmp_path, SWEEP, variant="beta").imported()]
    assert states == ["finished", "failed", "finished"]
    text = "variant,status,run,acc\na,FINISHED,0,1\na,KILLED,1,2\nb,RUNNING,0,3\n"
    assert [run.state for run in table(tmp_path, text).imported()] == ["finished", "failed", "running"]
    other = table(tmp_path, "variant,status,acc\na,keep,1\nb,discard,2\n")
    assert ("state" in other.roles, {run.state for run in other.imported()}) == (False, {"finished"})
    long = "variant,step,state,acc\na,1,,1\na,2,failed,2\na,3,,3\nb,1,done,1\n"  # one row says it
    assert [run.state for run in table(tmp_path, long).imported()] == ["failed", "finished"]


def test_several_columns_give_the_variant(tmp_path):
    """As in a sweep over two settings; each of them is one."""
    found = table(tmp_path, SWEEP, variant="algo,beta")
    configs = [run.config for run in found.imported()]
    assert [run.name for run in found.imported()] == ["grpo-0/1", "grpo-0/2", "grpo-.1/1"]
    assert [(config["variant"], config["algo"], config["beta"]) for config in configs[1:]] == [
        ("grpo-0", "grpo", "0"),
        ("grpo-.1", "grpo", ".1"),
    ]
    assert found.metrics == ["acc"]


@pytest.mark.parametrize(
    ("text", "named", "said"),
    [
        ("", {}, "has no rows"),
        (
            "a,b\n1,2\n",
            {},
            "a usual name for the variants; pass --map columns.variant=COLUMN (columns: a, b)",
        ),
        (WIDE, {"variant": "rekord"}, "columns.variant = 'rekord': is not a column of"),
        (WIDE, {"varient": "record"}, "columns.varient = 'record': varient is not a role; did you mean 'variant'"),
        ("variant,step,loss\na,1,2.0\na,1,3.0\n", {}, "loss of a, run 0, step 1 occurs twice (first in line 2)"),
        ("variant,seed,loss\na,x,2.0\n", {}, "line 2: seed = 'x': is not a whole number"),
        ("variant,parent,loss\na,b,1\na,c,2\n", {}, "a has the parent b in an earlier line"),
        ("variant,metric,value\na,loss,high\n", {}, "line 2: loss = 'high': is not a number"),
        ("variant,loss\n,1\n", {}, "line 2: variant: is empty"),
        (SWEEP, {}, "grpo, seed 1 occurs twice (first in line 2); pass --map columns.variant=COLUMN"),
        (SWEEP, {"variant": "algo,betta"}, "columns.variant = 'betta': is not a column of"),
        (SWEEP, {"state": "algo"}, "line 2: algo = 'grpo': is not a known state; write one of finished, completed, "),
        ("variant,seed,acc\na,0,.5\nb,0,NA\n", {"value": "acc"}, "line 3: acc = 'NA': is not a number; write a number"),
        ("variant;seed;acc\na;0;1,758\nb;0;1,9NA\n", {"value": "acc"}, "line 2: acc = '1,758': may mean 1.758 or 1758"),
        # Were it left out, a run that did not end well would count.
        ("variant,status,acc\na,finished,1\nb,OOM,2\n", {}, "line 3: status = 'OOM': is not a known state"),
    ],
)
def test_bad_tables_are_one_line(tmp_path, text, named, said):
    with pytest.raises(ConfigError) as error:
        table(tmp_path, text, **named)
    assert said in str(error.value)


GRID = "name,lr,dropout,val_acc\nr0,0.1,0,0.71\nr1,0.1,0.1,0.72\nr2,0.2,0,0.75\nr3,0.2,0.1,0.76\n"


def test_settings_of_variants_with_one_run_each_are_no_metrics(tmp_path):
    found = table(tmp_path, GRID)
    assert (found.metrics, found.settings) == (["val_acc"], ["lr", "dropout"])
    said = []
    list(read_runs(found.path, said.append, {}))
    assert "each of the 4 variants has one run, so the noise between runs cannot be estimated" in said[1]
    named = table(tmp_path, GRID, variant="lr")
    assert named.settings == ["lr"]
    assert [(run.variant, run.config) for run in named.runs][::2] == [("0.1", {"lr": "0.1"}), ("0.2", {"lr": "0.2"})]


def test_the_first_try_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"a": (2.0, 2.1, 1.9, 2.05, 1.95), "b": (0.96, 1.1, 0.9, 1.0, 0.95)}
    lines = [
        f"{name},{'a' if name == 'b' else ''},{run},{value}"
        for name in values
        for run, value in enumerate(values[name])
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["variant,parent,run,loss", *lines]))
    plan = ("--metric", "loss", "--direction", "min", "--margin", "0.1")
    said = output(capsys, "import", "table", "runs.csv", "--study", "s", *plan, status=0)
    assert "read as variant = variant, parent = parent, run = run; metrics: loss" in said
    assert "better" in output(capsys, "verdicts", "s", status=0)
    output(capsys, "report", status=0)
    page = unfolded((tmp_path / "reports/index.html").read_text())
    assert "<dt>seeds</dt>" in page
    assert "<dt>items</dt>" not in page  # it is about final metrics
    assert "\nb against a, 5 seeds: " in output(capsys, "diff", "a", "b", status=0)
    assert "for imported runs, `ablation diff` shows the joint effect" in refused(capsys, "explain", "a", "b")
    words = ("import", "table", "runs.csv", "--study", "s", *plan)
    assert "is not a column of" in refused(capsys, *words, "--map", "columns.seed=x")
    timed = ["variant,parent,run,loss,time", *(f"{line},{number}" for number, line in enumerate(lines))]
    (tmp_path / "runs.csv").write_text("\n".join(timed).replace("0.95", "OOM"))
    assert "line 11: loss = 'OOM': is not a number" in refused(capsys, *words)
