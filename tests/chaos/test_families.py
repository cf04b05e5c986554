"""Families of data that must pass no gate, by doors to a verdict.

A family makes the runs of two sides, of which the second is worse or cannot be judged, and the options. A door writes
them as its files and asks. A new family or door is one entry of FAMILIES or DOORS. `make chaos` tries 2,000 random
cases; `ABLATION_FUZZ=families:17 python -m pytest tests/chaos/test_families.py` runs one.
"""

import io
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import ablation
from ablation.cli.main import main
from tests.ablation.campaign.conftest import git

LONG = 2000
ENDS = (1, 2, 10, 11, 12, 13)  # of a gate that lets nothing pass
NOT_KEPT = (2, 10, 12, 13)  # of a trial


@dataclass(frozen=True)
class Case:
    """Two sides, each {seed: values by item}, the first the baseline; None in place of a value is an empty cell."""

    sides: tuple[dict[int, np.ndarray], dict[int, np.ndarray]]
    metric: str = "acc"
    margin: object = 0.05
    direction: str | None = "max"
    cut: int = 0  # characters that the candidate's files, and files of past runs, lack at their end
    copied: bool = False  # rows, or runs, stand twice
    items: tuple[Sequence[str], Sequence[str]] | None = None  # names


def shares(rng, level, seeds=6, items=120):
    """Right or wrong, with items of unequal difficulty that all runs share."""
    hard = np.random.default_rng(5).uniform(-0.15, 0.15, items)
    return {seed: (rng.random(items) < np.clip(level + hard, 0, 1)).astype(float) for seed in range(seeds)}


def scored(side, change):
    return {seed: change(values) for seed, values in side.items()}


def graded(rng, level, seeds=6, items=120):
    return scored(shares(rng, level, seeds, items), lambda v: np.round(0.2 + 0.6 * v + rng.uniform(0, 0.15, items), 3))


def ratings(rng, level, top=5, seeds=6, items=120):
    return {seed: np.clip(np.round(rng.normal(level, 0.8, items)), 1, top) for seed in range(seeds)}


def fall(rng, **more):
    return Case((shares(rng, 0.8), shares(rng, 0.55)), **more)


def rise(rng, metric):
    """A metric of which a rise is bad, and nobody says so."""
    return Case((graded(rng, 0.3), graded(rng, 0.7)), metric=metric, direction=None)


def one_row_in_percent(rng):
    case = Case((graded(rng, 0.7), graded(rng, 0.5)))
    case.sides[1][2][7] *= 100
    return case


def half_in_percent(rng):
    """In every other seed of the candidate."""
    return Case((graded(rng, 0.7), {s: v * (100 if s % 2 else 1) for s, v in graded(rng, 0.5).items()}))


def above_one(rng):
    """By which a margin of 1 was guessed."""
    return Case((graded(rng, 0.7), scored(graded(rng, 0.55), lambda v: np.append(v[:-1], 1.02))), margin=None)


def broken(rng, value, everywhere=False):
    """A value that is none, at one item of one seed."""
    case = fall(rng)
    case.sides[1][3][-1:] = value
    if everywhere:
        case.sides[1][3][:] = value
    return case


def without(case, seed):
    """The candidate's run of a seed is missing; the others are better than the baseline's."""
    better = shares(np.random.default_rng(1), 0.95)
    return replace(case, sides=(case.sides[0], {s: v for s, v in better.items() if s != seed}))


def same_seed(rng):
    """One good run under six names, of which the recipe has many bad ones."""
    one = shares(rng, 0.9, seeds=1)[0]
    return Case((shares(rng, 0.8), dict.fromkeys(range(6), one)), margin=0.01)


UNKNOWN = ("ece", "kl", "latency_ms", "toxicity", "val/ce", "fpr", "cost")
FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    "a fall": fall,
    "a fall in percent": lambda rng: Case(tuple(scored(s, lambda v: 100 * v) for s in fall(rng).sides), margin=5),
    "ratings that fall": lambda rng: Case((ratings(rng, 3.6), ratings(rng, 3.1)), metric="score", margin=0.2),
    "ratings without a margin": lambda rng: Case((ratings(rng, 3.6), ratings(rng, 3.1)), metric="score", margin=None),
    "one value above 1, no margin": above_one,
    **{f"a rise of {name}": partial(rise, metric=name) for name in UNKNOWN},
    "a loss that rises": lambda rng: rise(rng, "eval_loss"),
    "away from a target": lambda rng: Case((shares(rng, 0.5), shares(rng, 0.85)), direction="target:0.5"),
    "percent against shares": lambda rng: Case((graded(rng, 0.7), scored(graded(rng, 0.5), lambda v: 100 * v))),
    "one row in percent": one_row_in_percent,
    "a rating against shares": lambda rng: Case((graded(rng, 0.7), ratings(rng, 5, top=10))),
    "0 and 100 against 0 and 1": lambda rng: Case((shares(rng, 0.8), scored(shares(rng, 0.55), lambda v: 100 * v))),
    "half in percent": half_in_percent,
    "a margin as wide as the scale": lambda rng: Case((shares(rng, 0.8), shares(rng, 0.0)), margin=1.0),
    "a margin above the baseline": lambda rng: Case((shares(rng, 0.8), shares(rng, 0.0)), margin=0.9),
    "a margin of 1e308": lambda rng: fall(rng, margin=1e308),
    "a margin that is not a number": lambda rng: fall(rng, margin="nan"),
    "a negative margin": lambda rng: fall(rng, margin=-1),
    "a value is NaN": lambda rng: broken(rng, np.nan),
    "a value is infinite": lambda rng: broken(rng, np.inf),
    "a run of NaN": lambda rng: broken(rng, np.nan, everywhere=True),
    "a run is missing": lambda rng: without(fall(rng), 4),
    "a run stands for all seeds": same_seed,
    "the baseline twice": lambda rng: Case((shares(rng, 0.8),) * 2),
    "rows twice": lambda rng: fall(rng, copied=True),
    "cut inside a number": lambda rng: fall(rng, cut=2),
    "cut inside a line": lambda rng: fall(rng, cut=5),
    "hard items dropped": lambda rng: Case((shares(rng, 0.7), scored(shares(rng, 1.0), lambda v: v[:80])),),
    "items renamed": lambda rng: fall(rng, items=([f"q{k}" for k in range(120)], [f"r{k}" for k in range(120)])),
    "one item": lambda rng: Case((shares(rng, 0.8, items=1), shares(rng, 0.0, items=1))),
}  # fmt: skip


# --- doors -----------------------------------------------------------------------------------------------------------


def tables(case: Case) -> list[Path]:
    """Of each side a row for each seed and item."""
    paths = [Path("a.csv"), Path("b.csv")]
    for place, (path, side) in enumerate(zip(paths, case.sides, strict=True)):
        rows = []
        for seed, values in side.items():
            names = case.items[place] if case.items else [f"q{k}" for k in range(len(values))]
            rows += [f"{name},{seed},{value!r}" for name, value in zip(names, values.tolist(), strict=True)]
        text = "\n".join([f"item,seed,{case.metric}", *(rows * (1 + case.copied))]) + "\n"
        path.write_text(text[: len(text) - case.cut * place])
    return paths


def asked(case: Case) -> list[str]:
    words = ["--metric", case.metric]
    words += ["--margin", f"{case.margin}"] if case.margin is not None else []
    return [*words, *(["--direction", case.direction] if case.direction else [])]


def status(*words: object, out: io.StringIO | None = None) -> int:
    """The exit status of a command in this process."""
    with redirect_stdout(out or io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            return main([str(word) for word in words])
        except SystemExit as error:
            return int(error.code or 0)


def compared(*more: str) -> Callable[[Case], str]:
    def door(case: Case) -> str:
        a, b = tables(case)
        ended = status("compare", a, "--with", b, *asked(case), "--require", "not-worse", *more)
        return "" if ended in ENDS else f"exit {ended}"

    return door


def of_logarithms(case: Case) -> str:
    """With 0.01 in place of 0, which has no logarithm, and the margin as a share of the baseline's mean."""
    baseline, candidate = (scored(side, lambda v: np.where(v == 0, 0.01, v)) for side in case.sides)
    mean, margin = np.nanmean([*baseline.values()]), case.margin
    relative = replace(case, sides=(baseline, candidate), margin=margin / mean if isinstance(margin, float) else margin)
    return compared("--transform", "log")(relative)


def told(verdict: ablation.Verdict) -> str:
    """In Python nothing gates: the word is not one of a pass, or the reason or a note says why not to believe it."""
    notes = " ".join([verdict.reason, *verdict.notes])
    signs = "so they may", "not the same evaluation", "assuming larger is better", "as wide as the scale", "has no seed"
    warned = any(sign in notes for sign in signs)
    return "" if verdict.verdict not in ("better", "equivalent") or warned else f"{verdict.verdict}: {notes}"


def options(case: Case) -> dict[str, object]:
    margin = float(case.margin) if case.margin is not None else None
    return {"margin": margin, "direction": case.direction}


def in_python(case: Case) -> str:
    try:
        return told(ablation.compare(*map(str, tables(case)), metric=case.metric, **options(case)))
    except ablation.TrackerError:
        return ""


def of_arrays(case: Case) -> str:
    try:
        parent, child = (np.array([*side.values()]) for side in case.sides)
        return told(ablation.judge(child, parent, case.items and case.items[1], **options(case)))
    except (ablation.TrackerError, ValueError):  # sides of unequal shapes
        return ""


def gated(case: Case) -> str:
    """Final metrics of imported runs: the means."""
    named = [*zip(("base", "new"), case.sides, strict=True)]
    rows = [f"{name},{seed},{float(np.mean(values))!r}" for name, side in named for seed, values in side.items()]
    text = "\n".join([f"variant,seed,{case.metric}", *(rows * (1 + case.copied))]) + "\n"
    Path("runs.csv").write_text(text[: len(text) - case.cut])
    words = ("--study", "s", "--map", "parents.new=base", "parents.base=none", "--results", "results")
    done = status("import", "table", "runs.csv", *words, *asked(case))
    ended = status("gate", "s", "--results", "results") if done == 0 else done
    return "" if ended in ENDS else f"exit {ended}"


def nightly(case: Case) -> str:
    """The baseline's seeds are the past runs, and the candidate's the new run with its reruns."""
    if (case.direction or "").startswith("target"):
        return ""
    watched = f"{case.metric}:{case.direction}" if case.direction else case.metric
    past = [f"n{seed},{case.metric},last,10,{float(np.mean(values))!r}" for seed, values in case.sides[0].items()]
    text = "\n".join(["run,metric,window,last_step,value", *(past * (1 + case.copied))]) + "\n"
    Path("past.csv").write_text(text[: len(text) - case.cut])
    new = []
    for seed, values in case.sides[1].items():
        new.append(Path(f"new{seed}"))
        new[-1].mkdir()
        (new[-1] / "metrics.csv").write_text(f"step,{case.metric}\n10,{float(np.mean(values))!r}\n")
    ended = status("nightly", "past.csv", "--new", *new[:3], "--metric", watched)
    return "" if ended in ENDS else f"exit {ended}"


def table_of_attempts(case: Case) -> str:
    """A past campaign that kept the candidate: a row for each run. A keep that surely improves is a claim."""
    rows = [f"base\tkeep\t{float(np.mean(values))!r}" for values in case.sides[0].values()]
    rows += [f"new\tkeep\t{float(np.mean(values))!r}" for values in case.sides[1].values()]
    text = "\n".join([f"commit\tstatus\t{case.metric}", *(rows * (1 + case.copied))]) + "\n"
    Path("results.tsv").write_text(text[: len(text) - case.cut])
    metric = f"{case.metric}:{case.direction}" if case.direction else case.metric
    out = io.StringIO()
    if status("campaign", "results.tsv", "--metric", metric, "--json", out=out):
        return ""
    claims = [row for row in json.loads(out.getvalue())["rows"] if row["low"] > 0]
    return f"exit 0: {claims}" if claims else ""


def tried(case: Case) -> str:
    """The candidate as a trial of a loop, whose program prints the value of the run of each seed in turn."""

    def commit(side: dict[int, np.ndarray]) -> None:
        lines = [f"{case.metric}: {float(np.mean(values))!r}\n" for values in side.values()]
        Path("values").write_text("".join(lines))
        Path("train.sh").write_text(f"sed -n $(($1 % {len(lines)} + 1))p values\n")
        git(Path(), "add", "-A")
        git(Path(), "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "change")

    git(Path(), "init", "-q")
    commit(case.sides[0])
    metric = f"{case.metric}:{case.direction}" if case.direction else case.metric
    settings = "--seed-arg", "{seed}", "--min-seconds", 0, "--gpus", 0
    if status("campaign", "init", "--run", "sh train.sh", "--metric", metric, *settings):
        return ""
    commit(case.sides[1])
    return "" if (ended := status("try", "--why", "change")) in NOT_KEPT else f"exit {ended}"


DOORS: dict[str, Callable[[Case], str]] = {
    "compare": compared(),
    "compare --markdown": compared("--markdown"),
    "compare --json": compared("--json"),
    "compare --transform log": of_logarithms,
    "ablation.compare": in_python,
    "ablation.judge": of_arrays,
    "import and gate": gated,
    "nightly": nightly,
    "campaign results.tsv": table_of_attempts,
    "try": tried,
}
# What a door cannot see, since its data do not have it, or does not judge.
BLIND = {
    "nightly": [  # has no margin, and past runs of any number
        *(family for family in FAMILIES if "margin" in family and family != "ratings without a margin"),
        *("a run is missing", "a run stands for all seeds", "the baseline twice", "rows twice"),
        *("hard items dropped", "items renamed", "one row in percent"),
    ],
    "import and gate": ["hard items dropped", "items renamed"],  # has no items
    "campaign results.tsv": [  # has no margin, no items, and repeats of any number
        *(family for family in FAMILIES if "margin" in family and family != "ratings without a margin"),
        *("a run is missing", "hard items dropped", "items renamed"),
    ],
    "try": [  # has no margin, no items and no files, and draws its own seeds
        *(family for family in FAMILIES if "margin" in family and family != "ratings without a margin"),
        *("a run is missing", "hard items dropped", "items renamed", "rows twice"),
        *("cut inside a number", "cut inside a line"),
        "a rating against shares",  # a loop's metric may have no end: from 0.7 to 5 can be a gain
    ],
    "ablation.judge": ["items renamed", "rows twice", "cut inside a number", "cut inside a line"],  # has no files
}


def attempt(family: str, door: str, seed: int, folder: Path) -> str:
    """Try one family at one door; return what passed, or nothing."""
    folder.mkdir(exist_ok=True)
    with chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = DOORS[door](FAMILIES[family](np.random.default_rng(seed)))
    shutil.rmtree(folder)
    return f"{family} at {door}, seed {seed}: {found}" if found else ""


def test_what_is_well_passes_each_door(tmp_path):
    """But for what is wrong with them, these would pass."""
    rng = np.random.default_rng(0)
    one = shares(rng, 0.6, seeds=8)
    case = Case((one, scored(one, lambda v: np.maximum(v, rng.random(len(v)) < 0.3))))
    for name, door in DOORS.items():
        (tmp_path / name).mkdir()
        with chdir(tmp_path / name):
            assert door(case).startswith(("exit 0", "better")), name


@pytest.mark.parametrize("door", DOORS)
def test_no_family_passes_any_door(tmp_path, door):
    seen = [family for family in FAMILIES if family not in BLIND.get(door, ())]
    found = list(filter(None, (attempt(family, door, 0, tmp_path / "case") for family in seen)))
    assert not found, "\n".join(found)


# --- random tables ---------------------------------------------------------------------------------------------------

NOTATIONS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "right or wrong": lambda rng, level: (rng.random(level.shape) < level).astype(float),
    "shares": lambda rng, level: np.clip(np.round(rng.normal(level, 0.1), 3), 0, 1),
    "percent": lambda rng, level: np.clip(np.round(100 * rng.normal(level, 0.1), 1), 0, 100),
    "0 and 100": lambda rng, level: 100.0 * (rng.random(level.shape) < level),
    "ratings of 1 to 5": lambda rng, level: np.clip(np.round(1 + 4 * rng.normal(level, 0.15)), 1, 5),
    "ratings of 1 to 10": lambda rng, level: np.clip(np.round(1 + 9 * rng.normal(level, 0.15)), 1, 10),
    "rewards": lambda rng, level: np.round(rng.normal(4 * level - 2, 0.5), 4),
}
UNITS = {"percent": 100, "0 and 100": 100, "ratings of 1 to 5": 4, "ratings of 1 to 10": 9, "rewards": 4}


SHARES, PERCENT = ("right or wrong", "shares"), ("percent", "0 and 100")
RATINGS = ("ratings of 1 to 5", "ratings of 1 to 10")
# Pairs of notations that can be told apart; by means alone, 6 of 10 and 30 of 100 could be one scale.
TOLD_BY_MEANS = [*product(SHARES, PERCENT), *product(PERCENT, SHARES)]
TOLD_BY_ITEMS = [*TOLD_BY_MEANS, *product(SHARES, RATINGS), *product(RATINGS, PERCENT), *product(PERCENT, RATINGS)]


def planted(number: int) -> Case:
    """A random table whose candidate is worse by three margins or more, in a notation of its own on each side."""
    chance, rng = random.Random(f"families:{number}"), np.random.default_rng(number)
    noisy = door_of(number) in ("nightly", "campaign results.tsv", "try")
    means = noisy or door_of(number) == "import and gate"
    notation = other = chance.choice([*NOTATIONS])
    if chance.random() < 0.4 and door_of(number) != "try":  # which takes 0.7 and 20 for a metric without an end
        notation, other = chance.choice(TOLD_BY_MEANS if means else TOLD_BY_ITEMS)
    seeds, items, drop = chance.randint(2, 8), chance.choice([20, 60, 200]), chance.uniform(0.1, 0.5)
    if noisy:  # less is within what noisy runs predict
        items, drop = 200, max(drop, 0.3) if notation == other else 0.3  # else 2 percent could be one scale with 0.5
    if {notation, other} & {*RATINGS} and {notation, other} & {*PERCENT}:  # else 10 percent could be a rating
        drop = min(drop, 0.3)
    easy = np.clip(rng.normal(chance.uniform(0.5, 0.85), 0.05, (1, items)), 0, 1).repeat(seeds, axis=0)
    sides = NOTATIONS[notation](rng, easy), NOTATIONS[other](rng, np.clip(easy - drop, 0, 1))
    margin = round(chance.uniform(0.02, 0.3) * drop * UNITS.get(notation, 1), 6) if chance.random() < 0.8 else None
    metric, direction = chance.choice([("acc", None), ("score", None), ("score", "max"), ("reward", "max")])
    if notation == other and (low := sides[0].mean() - sides[1].mean()) < 2 * (margin or 0):
        sides[1][:] -= 0 if notation != "rewards" else 2 * (margin or 0) - low
    return Case(tuple(dict(enumerate(side)) for side in sides), metric, margin, direction)


def door_of(number: int) -> str:
    return [*DOORS][number % len(DOORS)]


def test_random_tables_with_a_planted_drop_pass_no_door(tmp_path, long):
    chosen, _, one = os.environ.get("ABLATION_FUZZ", "").partition(":")
    if chosen and chosen != "families":
        pytest.skip("another target was asked for")
    found = []
    for number in [int(one)] if chosen else range(LONG if long else 30):
        (tmp_path / "case").mkdir()
        with chdir(tmp_path / "case"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if problem := DOORS[door_of(number)](planted(number)):
                found.append(f"families:{number} at {door_of(number)}: {problem}")
        shutil.rmtree(tmp_path / "case")
    assert not found, "\n".join(found)
