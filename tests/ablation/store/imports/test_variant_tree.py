"""Seeds, variants and parents of runs, derived or told; and how a log joins what was known."""

import math
import random

import pytest

from ablation.config.import_file import ImportFile, with_options
from ablation.contract.errors import ConfigError
from ablation.readers.run import item_table, metric_table
from ablation.store.imports.grouping import Group, continued
from ablation.store.imports.stored import Record, merged_items, merged_metrics
from ablation.store.imports.variant_tree import _differs, _nearest, derive


def record(name, config=None, *, seed=None, started=None, kind="wandb"):
    head = {"format": kind, "source": f"/runs/{name}", "id": name, "name": name, "config": config or {}}
    return Record(**head, seed=seed, state="finished", started=started, last_step=1)


def place(records, *mapped, written=None):
    study = with_options(written or ImportFile(), list(mapped), {})
    variants, placed = derive(records, study, "study s")
    return {v.name: v for v in variants}, placed


def test_runs_with_names_that_say_nothing_are_grouped_by_configuration_without_the_seed():
    runs = [
        record("sunny-dawn-1", {"lr": 0.1, "seed": 0, "run_name": "a", "beta": 0}, started="2026-01-01T00:00:00"),
        record("calm-sea-2", {"lr": 0.1, "seed": 1, "run_name": "b", "beta": 0}, started="2026-01-01T01:00:00"),
        record("old-oak-3", {"lr": 0.2, "seed": 0, "run_name": "c", "beta": 0}, started="2026-01-02T00:00:00"),
        record("red-fox-4", {"lr": 0.2, "seed": 1, "run_name": "d", "beta": 0}, started="2026-01-02T01:00:00"),
        record("wet-cat-5", {"lr": 0.2, "seed": 0, "run_name": "e", "beta": 1}, started="2026-01-03T00:00:00"),
    ]
    variants, placed = place(runs)
    assert placed == [("root", 0), ("root", 1), ("lr-0.2", 0), ("lr-0.2", 1), ("beta-1", 0)]
    assert {name: variant.parent for name, variant in variants.items()} == {
        "root": None,
        "lr-0.2": "root",
        "beta-1": "lr-0.2",  # one value apart from it, two from the root
    }
    assert [(c.key, c.old, c.new) for c in variants["beta-1"].changes] == [("beta", 0, 1)]
    assert variants["beta-1"].factors == ("beta",)


def test_what_the_trainer_and_trl_compute_from_a_setting_is_no_change_of_its_own():
    def settings(**changed):
        given = {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8, "gradient_accumulation_steps": 1}
        given |= changed
        steps = given.setdefault("steps_per_generation", given["gradient_accumulation_steps"])
        batch = given["per_device_train_batch_size"]
        computed = {"train_batch_size": batch, "eval_batch_size": given["per_device_eval_batch_size"]}
        return given | computed | {"generation_batch_size": batch * steps}

    changes = [{}, {"per_device_train_batch_size": 16}, {"gradient_accumulation_steps": 2}, {"steps_per_generation": 4}]
    changes.append({"per_device_eval_batch_size": 2})
    names = ["base", "batch", "accumulated", "generated", "evaluated"]
    runs = [record(f"{name}-s0", settings(**change)) for name, change in zip(names, changes, strict=True)]
    variants, _ = place(runs, *(f"parents.{name}=base" for name in names[1:]))
    assert [variants[name].factors for name in names] == [tuple(change) for change in changes]
    [run] = place([record("a-s0", {"train_batch_size": 8})])[0].values()
    assert run.resolved == {"train_batch_size": 8}


@pytest.mark.parametrize(("key", "alone"), [("train_batch_size", 2), ("generation_batch_size", 8)])
def test_a_batch_size_that_devices_multiply_is_a_change(key, alone):
    """Their number is in no other setting."""
    given = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "gradient_accumulation_steps": 4}
    runs = [record(f"run{at}", given | {key: alone * at, "seed": 0}, started=f"2026-01-0{at}") for at in (1, 4)]
    variants, placed = place(runs)
    assert placed == [("root", 0), (f"{key}-{alone * 4}", 0)]
    [change] = variants[f"{key}-{alone * 4}"].changes
    assert (change.key, change.old, change.new) == (key, alone, alone * 4)


def test_systematic_names_tell_variants_apart_that_no_configuration_does():
    variants, placed = place([record(f"{name}/seed_{s}") for name in ("new", "base") for s in (3, 4)])
    assert placed == [("new", 3), ("new", 4), ("base", 3), ("base", 4)]
    assert (variants["new"].parent, variants["base"].parent) == ("base", None)
    assert variants["new"].changes == ()
    assert "no configuration recorded" in variants["new"].why


@pytest.mark.parametrize(
    ("name", "seed", "variant"),
    [("grpo_seed=11_lr2", 11, "grpo-lr2"), ("seed_4/grpo", 4, "grpo"), ("a/b/seed7", 7, "a-b"), ("s2/x-s5", 5, "s2-x")],
)
def test_the_seed_in_a_name(name, seed, variant):
    _, placed = place([record(name)])
    assert placed == [(variant, seed)]


def test_the_seed_is_where_it_is_said_to_be():
    config = {"trainer": {"seed": 3}, "data": {"shuffle": {"seed": 9}}}
    assert place([record("x", config)])[1][0][1] == 3  # further up
    assert place([record("x", config)], "seed=data.shuffle.seed")[1][0][1] == 9
    assert place([record("x-r12", config)], "seed=name:-r([0-9]+)$")[1][0][1] == 12
    runs = [record(f"r{i}", {"lr": 1}, started=f"2026-01-0{3 - i}") for i in range(3)]
    assert [seed for _, seed in place(runs, "seed=number")[1]] == [2, 1, 0]
    runs[1] = record("r1", {"lr": 1, "seed": 4})
    with pytest.raises(ConfigError, match=r"run r0 \(/runs/r0\) and 1 other run of the variant have no known seed"):
        place(runs)


def test_versions_of_a_resumed_run_of_lightning_are_one_run():
    """Folders `version_0`, `version_1`: parts of one run where steps go on; else one has to say what they are."""

    def version(number, first, last, config=None):
        run = record(f"lr/version_{number}", config, kind="tensorboard")
        return run.model_copy(update={"first_step": first, "last_step": last})

    study = ImportFile()
    for config in (None, {"lr": 0.1}):
        runs = [version(0, 0, 100, config), version(1, 90, 200, config), version(2, 201, 300, config)]
        assert continued(runs, study, "study s") == [(0, 1), (1, 2)]
        stopped = [version(0, 0, 100, config), version(1, 90, 200, config), version(2, 0, 300, config)]
        with pytest.raises(ConfigError, match=r"version_1 and lr/version_2 have the same settings") as told:
            continued(stopped, study, "study s")
        assert "--map seed=name:version_" in str(told.value)
        assert "variant=name:(version_" in str(told.value)
        mapped = with_options(study, [r"seed=name:version_(\d+)"], {})
        assert continued(stopped, mapped, "study s") == []
    again = [version(number, 0, 100, {"lr": 0.1}) for number in range(2)]  # repeats, from the first step each
    assert continued(again, study, "study s") == []
    assert continued([version(0, 0, 100, {"lr": 1}), version(1, 0, 100, {"lr": 2})], study, "study s") == []
    with pytest.raises(ConfigError, match="does not continue the steps"):
        continued([version(0, 0, 100), version(1, 0, 100)], study, "study s")


def test_runs_that_share_a_name_keep_their_own_configuration():
    """As folders `a`, `b` in each of two sweeps have, and runs of W&B that all have one name."""
    runs = [record("dpo", {"lr": lr, "seed": seed}) for lr in (0.1, 0.9) for seed in (0, 1)]
    variants, placed = place(runs)
    assert placed == [("root", 0), ("root", 1), ("lr-0.9", 0), ("lr-0.9", 1)]
    assert variants["lr-0.9"].resolved == {"lr": 0.9}


def test_two_runs_that_nothing_tells_apart_are_refused():
    runs = [record("x-s0", {"lr": 1}), record("again/x-s0", {"lr": 1})]
    assert len(place(runs)[0]) == 2  # their names do
    runs = [record("abc", {"lr": 1, "seed": 0}), record("def", {"lr": 1, "seed": 0})]
    with pytest.raises(ConfigError, match=r"abc \(/runs/abc\) and def \(/runs/def\) are both seed 0 of the same"):
        place(runs)


def test_parents_that_are_told():
    runs = [record(f"{name}-s0", {"a": i}) for i, name in enumerate("xyz")]
    variants, _ = place(runs, "parents.x=none", "parents.y=x", "parents.z=y")
    assert [variants[name].parent for name in "xyz"] == [None, "x", "y"]
    with pytest.raises(ConfigError, match="no run belongs to variant w"):
        place(runs, "parents.y=w")
    with pytest.raises(ConfigError, match="descends from itself"):
        place(runs, "parents.x=y", "parents.y=x")


def test_a_file_that_gives_reasons_only_leaves_the_tree_derived():
    written = ImportFile.model_validate({"variants": {"y": {"why": "more"}}, "factors": {"both": ["a", "b"]}})
    runs = [record("base-s0", {"a": 0, "b": 0}), record("y-s0", {"a": 1, "b": 1})]
    variants, _ = place(runs, written=written)
    assert (variants["y"].parent, variants["y"].why, variants["y"].factors) == ("base", "more", ("both",))


# A log and what was known of it


def rows(table):
    return [(row["step"], row["name"], row["value"]) for row in table.to_pylist()]


def test_a_log_that_says_the_same_adds_and_loses_nothing():
    known = metric_table([(1, "a", 1.0), (2, "a", math.nan), (2, "b", 5.0), (3, "a", 3.0)])
    again = metric_table([(2, "a", math.nan), (4, "a", 4.0)])
    both = merged_metrics(known, again)
    assert [(step, name) for step, name, _ in rows(both)] == [(1, "a"), (2, "a"), (2, "b"), (3, "a"), (4, "a")]
    assert rows(merged_metrics(both, again))[2:] == rows(both)[2:]


def test_from_the_first_step_that_differs_only_the_log_of_now_counts():
    known = metric_table([(step, name, float(step)) for step in range(1, 6) for name in "ab"])
    now = metric_table([(3, "a", 3.0), (4, "a", 40.0)])
    assert rows(merged_metrics(known, now)) == [
        *((step, name, float(step)) for step in (1, 2, 3) for name in "ab"),
        (4, "a", 40.0),
    ]


def test_items_of_a_subset_are_those_of_now():
    known = item_table([("x", "step 1", "p", "acc", 0.0), ("x", "step 2", "p", "acc", 0.0)])
    now = item_table([("y", "step 2", "p", "acc", 1.0)])
    both = merged_items(known, now)
    assert sorted((row["item"], row["subset"]) for row in both.to_pylist()) == [("x", "step 1"), ("y", "step 2")]


def test_the_tree_grows_by_the_smallest_difference():
    """Against a plain search over all pairs at each step, on configurations with absent keys, lists, and 1 == True."""
    draw = random.Random(0)
    values = [None, 0, 1, True, 1.5, "x", [1], [2]]
    for _ in range(20):
        leaves = [{key: draw.choice(values) for key in "abcde" if draw.random() < 0.8} for _ in range(25)]
        groups = [Group(f"v{at}", [at], leaf, started=f"2026-01-{at + 1:02d}") for at, leaf in enumerate(leaves)]
        grown, waiting = [groups[0]], groups[1:]
        expected = {}
        while waiting:
            _, _, at = min(
                (sum(_differs(key, group.leaves, above.leaves) for key in "abcde"), place, at)
                for at, group in enumerate(waiting)
                for place, above in enumerate(grown)
            )
            group = waiting.pop(at)
            differences = [sum(_differs(k, group.leaves, above.leaves) for k in "abcde") for above in grown]
            expected[group.name] = grown[differences.index(min(differences))].name
            grown.append(group)
        found = _nearest(groups)
        assert [group.name for group, _ in found] == [group.name for group in grown]
        assert {group.name: above.name for group, above in found if above is not None} == expected
