"""What a change gains and what it must not cost: the verdicts, the gate, the commands and the page."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from ablation.cli.main import main
from ablation.config.study_schema import Analysis, Guardrail
from ablation.judge.gate import as_guardrail, guard, rails_in_words
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.ablation.judge.studies import measurements, variant_tree
from tests.ablation.typed import output
from tests.simulate import Study, editing, simulate, stage_dir

LENGTH = Guardrail(metric="length", direction="min", margin=5)


def guarded(change, *, spread=3.0, seeds=6, rail=LENGTH, count=1, verdict=""):
    """The addition to a comparison whose items change in length by `change`."""
    rng = np.random.default_rng(3)
    parent = rng.normal(100, 10, (seeds, 300))
    child = parent + change + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, 1, (seeds, 300))
    study = measurements({"v0": {"all": parent}, "v1": {"all": child}}, variant_tree(2), value="length")
    [found] = guard([as_guardrail(study, rail, count)] * count).values()
    return rails_in_words(found, verdict)


@pytest.mark.parametrize(
    ("change", "said"), [(0.0, "guardrails hold"), (-40.0, "guardrails hold"), (20.0, "but worse in length")]
)
def test_a_guardrail_is_a_test_of_its_own(change, said):
    assert guarded(change) == said
    assert guarded(change, verdict="worse") == said.replace("but", "and")
    assert guarded(3.0, spread=40.0) == "length undecided"


def test_one_seed_or_too_few_for_others_hold_nothing():
    assert guarded(0.0, seeds=1) == guarded(0.0, seeds=3) == "length undecided"
    assert guarded(0.0, spread=0.01, seeds=5) == "guardrails hold"
    assert guarded(0.0, spread=0.01, seeds=5, count=2) == "length and length undecided"  # alpha is shared


@pytest.mark.parametrize("metrics", [["length", "length"], ["hit"]])
def test_contradictory_guardrails_are_refused(metrics):
    rails = [
        {"metric": name, "direction": way, "margin": 1} for name, way in zip(metrics, ("max", "min"), strict=False)
    ]
    with pytest.raises(ValidationError, match="is the primary metric or occurs twice; name each metric once"):
        Analysis(value="hit", direction="max", margin=0.02, guardrails=rails)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study whose v1 is better and longer, whose v2 is better, and which guards lengths."""
    folder = tmp_path_factory.mktemp("guarded") / "results"
    rates = {"v0": 0.3, "v1": 0.02, "v2": 0.02, "v3": 0.3}
    plan = simulate(folder, [Study("toy", seeds=6, items={"all": 300}, rho=0.9, distances=rates)])
    with editing(plan) as content:
        analysis = content["studies"][0]["analysis"]
        analysis["guardrails"] = [LENGTH.model_dump()]
    rng = np.random.default_rng(0)
    for variant in rates:
        for seed in range(6):
            file = stage_dir(plan, "toy", variant, seed, "evaluate") / "items.parquet"
            table = pq.read_table(file)
            rows = [row for row in table.to_pylist() if row["protocol"] == "edited"]
            for number, row in enumerate(rows):
                longer = 30 * (variant == "v1") + rng.normal(0, 1)
                row |= {"name": "length", "value": 100.0 + number % 7 + longer}
            pq.write_table(pa.concat_tables([table, pa.Table.from_pylist(rows, schema=table.schema)]), file)
    collect(folder)
    return folder


def test_the_commands_and_the_page_say_both(results, capsys):
    printed = json.loads(output(capsys, "verdicts", "toy", "--json", "--results", results))
    said = {row["child"]: (row["verdict"], row["guardrails"]) for row in printed["rows"]}
    assert said["v1"] == ("better", "but worse in length")
    assert said["v2"] == ("better", "guardrails hold")
    assert {row["metric"]: row["margin"] for row in printed["guardrails"]} == {"length": 5}
    for comparison, status in (("v1", 10), ("v2", 0)):
        assert main(["gate", "toy", comparison, "--require", "better", "--results", str(results)]) == status
    assert "passed: v2 after v0 is better" in capsys.readouterr().out
    assert {
        row["child"]: row["guardrails"]
        for row in json.loads(output(capsys, "gate", "toy", "--json", "--results", results, status=10))["rows"]
    } == {child: guardrails for child, (_, guardrails) in said.items()}
    table = output(capsys, "verdicts", "toy", "--why", "--results", results)
    assert "toy: guardrails, corrected for all comparisons and guardrails" in table
    assert re.search(r"v1 +v0 +better +but worse in length ", table)
    assert re.search(
        r"v2 is better than v0 by [^.]*\.\d+ \[[^]]*\]; 1 more is better, but worse in a guardrail\.",
        " ".join(output(capsys, "verdicts", "toy", "--brief", "--results", results).split()),
    )
    with Store(results / DATABASE) as store:
        html = draw(read_page(store))
    assert '<small class="rails">but worse in length</small>' in html
