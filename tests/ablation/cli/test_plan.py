"""The command plan: what finds an effect, and what it costs, before it runs."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from ablation.cli.main import main
from ablation.judge.planning import Pilot, detectable, fewest_seeds
from ablation.judge.power import minimal_detectable_effect
from ablation.store.collect import collect
from tests.ablation.readers.samples import arm
from tests.simulate import Study, simulate


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    simulate(folder, [Study("one", seeds=5, variants=3, seed_sd=0.02, items={"a": 400}), Study("single", seeds=1)])
    collect(folder)
    return folder


def test_hours_count_what_is_shared_once_and_what_has_run_not_again(results, capsys):
    words = ["plan", "one", "v1", "--effect", "0.03", "--seeds", "5", "10", "--items", "400", "800"]
    assert main([*words, "--results", str(results)]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.split()[1:2] in (["400"], ["800"])]
    assert [(row[0], row[1], *row[-2:]) for row in rows] == [
        ("5", "400", "0.0694", "0"),  # 2 variants x 2 stages of 12.5 s
        ("10", "400", "0.139", "0.0694"),
        ("5", "800", "0.104", "0.0694"),  # the evaluations anew, of twice the length
        ("10", "800", "0.208", "0.174"),
    ]
    assert "it cannot be decided below " in printed


def test_a_stated_noise_is_that_of_the_power_analysis(capsys):
    words = ["plan", "--effect", "0.05", "--seed-sd", "0.02", "--item-sd", "0.3", "--items", "500", "--seeds", "8"]
    assert main(words) == 0
    noise = Pilot("", 2, 500, 0.02**2, 0.0, 0.3**2 / 500).noise(8, 500)
    assert f"{minimal_detectable_effect(noise, 0.05):.3g}" in capsys.readouterr().out


def test_the_example_of_the_page(capsys):
    page = (Path(__file__).parents[3] / "docs/plan.md").read_text(encoding="utf-8")
    command, shown = re.search(r"has run:\n\n    ablation (.*)\n\nsays\n\n((?:    .*\n|\n)+)", page).groups()
    assert main(shlex.split(command)) == 0
    assert textwrap.dedent(shown).strip() == capsys.readouterr().out.strip()


def test_two_sides_of_another_tool_are_a_pilot(tmp_path, capsys):
    sides = arm(tmp_path / "base"), arm(tmp_path / "new", gain=0.1)
    assert main(["plan", "--effect", "0.1", "--seeds", "5", "--pilot", *sides]) == 0
    assert "from the noise of 1 edge, 3 seeds of 60 items" in capsys.readouterr().out


def test_a_plan_pays_for_not_knowing_the_noise():
    sure, guessed = (Pilot("", 5, 200, 1e-3, 4e-4, 1e-5, df=df) for df in (float("inf"), 4))
    assert detectable(guessed, 8, 200, 0.05, 0.8)[0] > detectable(sure, 8, 200, 0.05, 0.8)[0]
    few, many = (fewest_seeds(pilot, 0.03, 200, lambda _: 0.05, 0.8) for pilot in (sure, guessed))
    assert few < many
    assert sure.power(0.03, few, 200, 0.05) >= 0.8 > sure.power(0.03, few - 1, 200, 0.05)
    assert sure.noise(5, 400).seed_variance == pytest.approx((1e-3 - 2e-4) / 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["single", "--effect", "0.1"], "has one seed, or none"),
        (["one", "--effect", "0"], "--effect = 0.0: is not a valid number"),
        (["one", "--effect", "0.1", "--power", "1"], "--power = 1.0: is not a valid number"),
        (["one", "--effect", "0.03", "--hours", "0.01"], "no plan finds an effect of 0.03 with 80% below "),
        (["one", "--effect", "0.0001", "--hours", "1"], "do not find an effect of 0.0001"),
        (["one", "--effect", "0.1", "--seeds", "1"], "--seeds = 1: is not a valid number"),
        (["one", "--effect", "0.1", "--seed-sd", "1"], "states a noise by hand"),
        (["--effect", "0.1"], "nothing tells the noise"),
        (["two", "--effect", "0.1"], "is not in the database"),
    ],
)
def test_bad_input_is_one_line(results, capsys, words, said):
    assert main(["plan", *words, "--results", str(results)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert said in line
