"""The command power: what detects an effect, and what it costs, before it runs."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from ablation.cli.main import main
from ablation.contract.numbers import rough
from ablation.judge.planning import Pilot
from ablation.judge.power import minimal_detectable_effect
from ablation.store.collect import collect
from tests.ablation.readers.samples import hits, write_group
from tests.ablation.typed import output, refused
from tests.simulate import Study, editing, simulate


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    simulate(folder, [Study("one", seeds=5, variants=3, seed_sd=0.02, items={"a": 400}), Study("single", seeds=1)])
    collect(folder)
    return folder


def test_hours_count_what_is_shared_once_and_what_has_run_not_again(results, capsys):
    words = ["power", "one", "v1", "--effect", "0.03", "--seeds", "5", "10", "--items", "400", "800"]
    printed = output(capsys, *words, "--results", results)
    lines = [re.split(" {2,}", line.strip()) for line in printed.splitlines()]
    rows = [line for line in lines if line[1:2] in (["400"], ["800"])]
    assert [(row[0], row[1], *row[-2:]) for row in rows] == [
        ("5", "400", "4 min", "0 s"),  # 2 variants x 2 stages of 12.5 s
        ("10", "400", "8 min", "4 min"),
        ("5", "800", "6 min", "4 min"),  # the evaluations again, of twice the length
        ("10", "800", "12 min", "10 min"),
    ]
    said = r"v0 -> v1: \d+ seeds with 400 items detect an effect of 0.03 with 80% power \(likely .*\)"
    assert re.fullmatch(f"{said}; the remaining runs take .* of device time; this is the cheapest plan", lines[-1][0])


def test_every_comparison_is_answered_at_the_same_items(results, capsys):
    words = ["one", "--effect", "0.03", "--items", "400", "1600", "--results", str(results)]
    printed = json.loads(output(capsys, "power", *words, "--json"))
    each = printed["notes"]
    assert sorted(note.partition(":")[0] for note in each) == ["v0 -> v1", "v0 -> v2"]
    assert all(re.search(r"\d+ seeds with 400 items detect .* \(likely [\d.]+ to [\d.]+\)", note) for note in each)


def test_a_stated_noise_is_that_of_the_power_analysis(capsys):
    words = ["power", "--effect", "0.05", "--seed-sd", "0.02", "--item-sd", "0.3", "--items", "500", "--seeds", "8"]
    assert main(words) == 0
    noise = Pilot("", 2, 500, 0.02**2, 0.0, 0.3**2 / 500).noise(8, 500)
    assert f" {rough(minimal_detectable_effect(noise, 0.05))}\n" in capsys.readouterr().out


def test_two_groups_of_another_tool_are_a_pilot(tmp_path, capsys):
    groups = write_group(tmp_path / "base"), write_group(tmp_path / "new", gain=0.1)
    said = output(capsys, "power", "--effect", "0.1", "--seeds", "5", "--pilot", *groups)
    assert "from the noise of 1 comparison with 3 seeds and 60 items" in said
    words = "power", "--effect", "0.1", "--pilot", *groups, "--metric", "none"
    assert "the file has no metric of this name" in refused(capsys, *words)


def test_one_run_of_each_group_tells_the_noise_of_items(tmp_path, capsys):
    groups = [write_group(tmp_path / name, seeds=1, gain=gain) for name, gain in (("base", 0.0), ("new", 0.1))]
    words = ("power", "--effect", "0.1", "--pilot", *groups)
    said = output(capsys, *words)
    assert "from the noise of 1 comparison with one run per side and 60 items" in said
    known, between = said.splitlines()[-2:]
    found = re.search(r": ([\d,]+) items detect an effect of 0.1 .* between these two runs", known)[1]
    enough = int(found.replace(",", ""))
    differences = hits(0, 0.1) - hits(0)
    rough = (1.96 + 0.84) ** 2 * differences.var(ddof=1) / 0.1**2
    assert 0.95 * rough < enough < 1.3 * rough  # which is of a known variance
    counts = [int(count) for count in re.findall(r"(\d+) seeds if that SD is", between)]
    assert counts == sorted(counts)
    said = output(capsys, *words, "--seed-sd", "0.02", "--items", "60", "5000")
    assert "even 200 seeds with 60 items would not detect an effect of 0.1" in said
    assert "--seed-sd" in refused(capsys, *words, "--seeds", "5")
    several = [write_group(tmp_path / name) for name in ("base3", "new3")]
    said = refused(capsys, "power", "--effect", "0.1", "--pilot", *several, "--seed-sd", "1")
    assert "the noise between seeds is estimated from the pilot's 3 seeds" in said


def rows_of(capsys, *words):
    """{(samples, checkpoints): row} of `--json`, and what the notes say."""
    printed = json.loads(output(capsys, "power", *words, "--json"))
    return {(row["samples"], row["checkpoints"]): row for row in printed["rows"]}, " ".join(printed["notes"])


def test_the_samples_of_another_tools_items_tell_their_noise(tmp_path, capsys):
    """Of even chances drawing is all the noise there is; how much that was stays uncertain."""
    rng, groups = np.random.default_rng(4), {}
    for name in ("a", "b"):
        right = rng.random((5, 200, 4)) < 0.5
        frame = pd.DataFrame({"value": right.ravel().astype(int), "sample": np.tile(range(4), 1000)})
        frame["item"], frame["seed"] = np.tile(np.repeat(range(200), 4), 5), np.repeat(range(5), 800)
        groups[name] = str(tmp_path / f"{name}.csv")
        frame.to_csv(groups[name], index=False)
    words = ["--effect", "0.05", "--seeds", "5", "--items", "200", "--pilot", *groups.values()]
    found, _ = rows_of(capsys, *words, "--samples", "4", "64")
    assert found[64, 1]["effect"] < 0.75 * found[4, 1]["effect"]
    same, _ = rows_of(capsys, *words, "--samples", "4", "64", "--sample-sd", "0")
    assert same[64, 1]["effect"] == pytest.approx(same[4, 1]["effect"])
    assert rows_of(capsys, *words)[0].keys() == {(4, 1)}
    assert "items and 4 samples per item at 2 checkpoints" in output(capsys, "power", *words, "--checkpoints", "2")


def test_an_evaluation_of_more_costs_more(tmp_path, capsys):
    plan = simulate(tmp_path, [Study("one", seeds=5, variants=2, seed_sd=0.02, items={"a": 400})])
    with editing(plan) as content:
        content["studies"][0]["table"]["means_over"] = {"key": "averaged", "protocols": ["edited"]}
        content["studies"][0]["analysis"]["samples"] = 6
        for variant in content["studies"][0]["variants"]:
            variant["resolved"]["averaged"] = 3
    collect(tmp_path)
    words = ["one", "--effect", "0.05", "--seeds", "5", "--items", "400", "--results", str(tmp_path)]
    found, _ = rows_of(capsys, *words, "--samples", "2", "4", "--checkpoints", "3", "6")
    hours = {size: row["hours"] * 3600 / 12.5 / 10 for size, row in found.items()}  # stages of 12.5 s, a training each
    assert hours == pytest.approx({(2, 3): 2, (4, 3): 3, (2, 6): 3, (4, 6): 5})
    assert found[2, 3]["hours_to_run"] == 0
    said = refused(capsys, "power", *words, "--checkpoints", "2")
    assert "--checkpoints: the noise between checkpoints is not known" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["single", "--effect", "0.1"], "has at most one seed, or the same value"),
        (["one", "--effect", "0"], "--effect = 0.0: is not a valid number"),
        (["one", "--effect", "0.1", "--power", "1"], "--power = 1.0: is not a valid number"),
        (["one", "--effect", "0.03", "--hours", "0.01"], "to detect an effect of 0.03 with 80% power; pass more"),
        (["one", "--effect", "0.0001", "--hours", "1"], "do not detect an effect of 0.0001"),
        (["one", "--effect", "0.1", "--seeds", "1"], "--seeds = 1: is not a valid number"),
        (["one", "--effect", "0.1", "--seed-sd", "1"], "--item-sd: must be passed together with --items"),
        (["--effect", "0.1"], "there is nothing to estimate the noise from"),
        (["one", "--effect", "0.1", "--item", "id"], "--item = 'id': needs evaluations of a baseline and a candidate"),
        (["one", "--effect", "0.1", "--samples", "4"], "--samples: one does not state how many samples"),
        (["one", "--effect", "0.1", "--checkpoints", "4"], "--checkpoints: the noise between checkpoints is not"),
        (["one", "--effect", "0.1", "--samples", "0"], "--samples = 0: is not a valid number"),
        (
            ["one", "--effect", "0.1", "--items", "1"],
            "--items = 1: corresponds to 1.0 independent items, which are too few",
        ),
        (["two", "--effect", "0.1"], "is not in the database"),
    ],
)
def test_bad_input_is_one_line(results, capsys, words, said):
    assert said in refused(capsys, "power", *words, "--results", results)
