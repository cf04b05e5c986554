"""Two results folders become one, whose tables are those of a grid that ran at one site."""

import json
import os
import shutil

import pandas as pd
import pytest

from ablation.cli.main import main
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.rows import OF_THE_MACHINE
from ablation.contract.status import altered, left_files, read_state
from ablation.plan.build import build_plan
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from ablation.store.merge import merge
from tests.ablation.store.test_collect import content
from tests.simulate import Study, locked, simulate, stage_dir

STUDY = Study(seeds=4, distances={"v1": 0.02})


@pytest.fixture
def sites(results, tmp_path):
    """The whole grid, and two copies of which each lacks the seeds of the other."""
    plan = simulate(results, [STUDY], digests=True)
    collect(results)
    found = []
    for rest in (0, 1):
        site = tmp_path / f"site{rest}"
        shutil.copytree(results, site)
        (site / DATABASE).unlink()
        for variant in STUDY.tree():
            for seed in range(1 - rest, STUDY.seeds, 2):
                for stage in ("train", "evaluate"):
                    shutil.rmtree(site / stage_dir(plan, "toy", variant, seed, stage).relative_to(results))
        found.append(site)
    return found


def test_two_halves_give_the_tables_of_one_site(results, sites, tmp_path, capsys):
    here, there = sites
    assert main(["merge", str(there), "--results", str(here), "--site", "helsinki"]) == 0
    assert capsys.readouterr().out == "16 stages added, 2 in both folders\n"
    for folder in (results, here):
        collect(folder)
        assert main(["verdicts", "toy", "--json", "--results", str(folder)]) == 0
    one, two = capsys.readouterr().out.replace(str(here), str(results)).split("\n{", 1)
    assert json.loads(one) == json.loads("{" + two)
    whole, merged = content(results), content(here)
    for table in ("metrics", "items", "run_stages", "variants"):
        assert merged[table] == whole[table]
    with Store(here / DATABASE) as store:
        query = "SELECT seed, data->>'site' FROM stages JOIN provenance USING (key) GROUP BY ALL ORDER BY ALL"
        assert store.rows(query)[1] == [(0, None), (1, "helsinki"), (2, None), (3, "helsinki"), (None, None)]
    stage = stage_dir(here / "plan.json", "toy", "v1", 1, "train")
    stage = here / stage.relative_to(results)
    assert altered(stage, read_state(stage, stage.name)) == ""
    assert (merge(here, there, "again").added, merge(here, there, "again").in_both) == (0, 18)


def test_a_key_with_two_contents_is_an_error_that_names_both_and_nothing_is_copied(results, sites):
    here, there = sites
    shared = next(there.glob("stages/toy/prepare/*"))
    frame = pd.DataFrame({"step": [1], "name": ["loss"], "value": [0.5]})
    for site in sites:
        folder = site / shared.relative_to(there)
        times = pd.DataFrame({"step": [1], "name": ["time/step"], "value": [float(len(site.name))]})
        pd.concat([frame, times]).to_parquet(folder / "metrics.parquet", index=False)
        frame["value"] += 0.25
    status = shared / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | left_files(shared)))
    before = sorted(here.rglob("*"))
    with pytest.raises(ConfigError) as caught:
        merge(here, there, "b")
    for folder in (shared, here / shared.relative_to(there)):
        assert str(folder / "metrics.parquet") in str(caught.value)
    assert sorted(here.rglob("*")) == before
    frame = pd.read_parquet(shared / "metrics.parquet")
    frame["value"] -= [0.25, 0.0]
    frame.loc[1, "value"] = 99.0  # a time may differ
    frame.to_parquet(shared / "metrics.parquet", index=False)
    status.write_text(json.dumps(json.loads(status.read_text()) | left_files(shared)))
    assert merge(here, there, "b").added == 16


def test_stages_that_did_not_end_well_or_are_damaged_stay_there_and_failed_ones_here_are_replaced(results, sites):
    here, there = sites
    lost, damaged = sorted(there.glob("stages/toy/evaluate/*"))[:2]
    text = (lost / "status.json").read_text()
    (lost / "status.json").write_text(text.replace('"ok"', '"failed"'))
    damaged_items = (damaged / "items.parquet").read_bytes()
    (damaged / "items.parquet").write_bytes(damaged_items[:-1] + b"\0")
    failed = here / next(there.glob("stages/toy/train/*")).relative_to(there)
    failed.mkdir()
    (failed / "status.json").write_text(json.dumps({"state": "failed", "key": failed.name}))
    with locked(failed), pytest.raises(TrackerError, match="the stage is running here; merge when it has ended"):
        merge(here, there, "b")
    merged = merge(here, there, "b")
    assert (merged.added, merged.left_out) == (14, 2)
    assert read_state(failed, failed.name).state == "ok"
    assert not list(here.rglob("*.tmp.*"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda site, stage: (site / "analysis_history.json").write_text("{"),
        lambda site, stage: (stage / "provenance.json").write_text("[]"),
        lambda site, stage: os.mkfifo(stage / "output"),
    ],
    ids=["history", "provenance", "pipe"],
)
def test_nothing_is_copied_unless_all_can_be_read(sites, damage):
    here, there = sites
    last = sorted(path.parent for path in there.glob("stages/toy/train/*/status.json"))[-1]
    damage(there, last)
    status = json.loads((last / "status.json").read_text()) | left_files(last)
    (last / "status.json").write_text(json.dumps(status))
    before = sorted(path for path in here.rglob("*"))
    with pytest.raises(ConfigError):
        merge(here, there, "b")
    assert sorted(path for path in here.rglob("*")) == before


@pytest.mark.parametrize("diverged", ["here", "there"])
def test_a_stage_that_diverged_at_one_site_and_ended_well_at_the_other_is_a_conflict(sites, diverged):
    here, there = sites
    status = next((here if diverged == "here" else there).glob("stages/toy/prepare/*")) / "status.json"
    status.write_text(status.read_text().replace('"ok"', '"diverged"'))
    with pytest.raises(ConfigError, match="the same stage has the state"):
        merge(here, there, "b")


def test_only_metrics_of_the_machine_may_differ():
    of_the_machine = ["time/step", "train_runtime", "train_steps_per_second", "memory/peak_gb", "ram_mb"]
    others = ["sentiment", "second_order_loss", "working_memory/accuracy", "eval/times_correct", "loss"]
    found = pd.Series([*of_the_machine, *others]).str.contains(OF_THE_MACHINE)
    assert found.tolist() == [True] * len(of_the_machine) + [False] * len(others)


def test_a_plan_that_was_changed_at_the_other_site_counts(results, sites):
    here, there = sites
    entry = {"digest": "a", "analysis": {}, "since": "2026-01-01", "comparisons": [], "seeds": {}, "rules": 1}
    later = entry | {"digest": "b", "since": "2026-01-02"}
    (here / "analysis_history.json").write_text(json.dumps({"toy": [later]}))
    (there / "analysis_history.json").write_text(json.dumps({"toy": [entry, later | {"since": "2026-01-03"}]}))
    merge(here, there, "b")
    assert json.loads((here / "analysis_history.json").read_text()) == {"toy": [entry, later]}


def test_shards_are_the_runs_of_whole_seeds(tmp_path):
    def selected(**more):
        settings = {"scale": "smoke", "study": "debias", "seeds": "5", "results": str(tmp_path / "r"), **more}
        plan = build_plan(load_settings(settings))
        return {stage.key: stage.seed for stage in plan.selected()}, plan.text

    whole, text = selected()
    parts = [selected(shard=f"{k}/3") for k in (1, 2, 3)]
    with pytest.raises(ConfigError, match="1/3': does not contain seed 1; choose another shard"):
        selected(shard="1/3", seed="1")
    assert [{seed for seed in part.values() if seed is not None} for part, _ in parts] == [{0, 3}, {1, 4}, {2}]
    assert {key: seed for part, _ in parts for key, seed in part.items()} == whole
    assert all(other == text for _, other in parts)  # the tables always show the whole plan
    for wrong in ("0/2", "3/2", "half", "1/0", "6/6"):
        with pytest.raises(ConfigError, match="shard"):
            load_settings({"shard": wrong, "seeds": "5"})
