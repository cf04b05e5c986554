"""What is not compared: groups that were asked differently, and bad input, each in one line with status 2."""

import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import ablation
from tests.ablation.readers.command import read, refused, told
from tests.ablation.readers.samples import ITEMS, hits, row, write_group, write_samples
from tests.ablation.typed import typed

ROWS = [row(i, v) for i, v in enumerate(hits(0))]


def beside(folder, rows, **options):
    """A run, and one of other rows."""
    groups = [write_samples(folder / name / "seed0", of, **options) for name, of in (("base", ROWS), ("new", rows))]
    return groups[0], "--with", groups[1]


def changed(at, **more):
    return [*ROWS[:at], ROWS[at] | more, *ROWS[at + 1 :]]


# What was asked differently is not paired.


def test_another_prompt_is_refused_with_the_items_and_may_be_allowed(tmp_path, capsys):
    groups = write_group(tmp_path / "base"), write_group(tmp_path / "new", prompt="Question: {}")
    said = refused(capsys, groups[0], "--with", groups[1])
    assert f"{ITEMS} of {ITEMS} items of toy have a different prompt" in said
    assert "and 57 more" in said
    assert "--allow prompt" in said
    found = read(capsys, groups[0], "--with", groups[1], "--allow", "prompt")
    assert any("as --allow prompt permits" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("rows", "words", "item"),
    [
        (changed(7, target_hash="f" * 64), "1 of 60 items of toy has a different target", 7),
        ([*ROWS, ROWS[3]], "occurs 2 times, but item ", 3),
        (changed(5, acc=float("nan")), "no finite value", 5),
        (changed(5, acc=None), "no finite value", 5),
        (changed(5, acc=[1, 2]), "all items at once", 5),
    ],
)
def test_an_item_that_is_another_or_has_no_value_is_named(rows, words, item, tmp_path, capsys):
    said = refused(capsys, *beside(tmp_path, rows, results=False))
    assert words in said
    assert ROWS[item]["doc_hash"][:12] in said


def test_another_version_of_the_task_is_refused(tmp_path, capsys):
    base, new = (
        write_samples(tmp_path / name / "seed0", ROWS, version=version)
        for name, version in (("base", 1.0), ("new", 2.0))
    )
    assert "has version 2.0, but version 1.0 in" in refused(capsys, base, "--with", new)
    assert read(capsys, base, "--with", new, "--allow", "task")["effect"] == 0


@pytest.mark.parametrize("name", ["results", "foo"])  # the latter with `--output_path foo.json`
def test_samples_that_are_not_those_of_their_results_are_refused(groups, capsys, name):
    (results,) = Path(groups[1], "seed1").glob("results_*")
    results.rename(results.with_name(results.name.replace("results", name)))
    (path,) = Path(groups[1], "seed1").glob("samples_*")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-5]))
    assert "task_hashes" in refused(capsys, groups[0], "--with", groups[1])


def test_items_that_one_group_lacks_are_counted_and_named_or_left_out(groups, tmp_path, capsys):
    short = tmp_path / "short"
    for seed in range(3):
        write_samples(short / f"seed{seed}", [row(i, v) for i, v in enumerate(hits(seed)[:50])])
    said = refused(capsys, groups[0], "--with", short)
    assert "this file lacks 10 (" in said
    assert "--common-items" in said
    found = read(capsys, groups[0], "--with", short, "--common-items")
    assert (found["items"], found["effect"]) == (50, 0)


# Bad input: one line, status 2.


def test_what_is_wrong_with_the_files_is_one_line(groups, tmp_path, capsys):
    (folder := tmp_path / "other").mkdir()
    (folder / "notes.jsonl").write_text("not json\n")
    (folder / "empty.jsonl").write_text("")
    (folder / "rewards.jsonl").write_text('{"name": "a", "points": 1.0}\n')
    os.mkfifo(folder / "samples.jsonl")
    (results,) = Path(groups[0], "seed0").glob("results_*")
    (tmp_path / "nothing").mkdir()
    for candidate, said in (
        (folder / "notes.jsonl", "is not a readable evaluation"),
        (folder / "empty.jsonl", "is not a readable evaluation"),
        (
            folder / "rewards.jsonl",
            "if the file is a table, choose from its columns (name, points) with --item and --metric",
        ),
        (folder / "samples.jsonl", "is not a file"),
        (tmp_path / "nothing", "holds no evaluation"),
        (tmp_path / "gone*", "no file has this name or matches it as a pattern"),
        (results, "--log_samples"),
        (groups[0], "belongs to both baseline and candidate"),
    ):
        assert said in refused(capsys, groups[0], "--with", candidate), said
    assert "needs two evaluations" in refused(capsys, groups[0])


@pytest.mark.parametrize(
    "words",
    [
        ("--margin", "0"),
        ("--margin", "nan"),
        ("--changed-items", "-1"),
        ("--direction", "up"),
        ("--direction", "target:x"),
        ("--names", "one", "one"),
    ],
)
def test_options_that_make_no_sense(words, groups, capsys):
    assert words[0] in refused(capsys, groups[0], "--with", groups[1], *words)


def test_seeds_that_no_run_shares_and_seeds_that_cannot_be_told(groups, tmp_path, capsys):
    for name in ("seed7", "seed8"):
        write_samples(tmp_path / "far" / name, ROWS)
    assert "have no common seed (" in refused(capsys, groups[0], "--with", tmp_path / "far")
    for name in ("x", "y"):
        write_samples(tmp_path / "nameless" / name, ROWS)
    assert "--seed-from" in refused(capsys, groups[0], "--with", tmp_path / "nameless")
    assert "finds no number" in refused(capsys, groups[0], "--with", groups[1], "--seed-from", r"run(\d+)")
    assert "is not a valid regular expression" in refused(capsys, groups[0], "--with", groups[1], "--seed-from", "(")


@pytest.mark.parametrize(
    ("names", "at", "seeds"),
    [
        (["checkpoint-500", "checkpoint-1000", "checkpoint-2000"], "checkpoint-2000", [500, 1000, 2000]),
        (["tiny-v1", "tiny-v2"], "tiny-v2", [1, 2]),
        (["2026-11-26", "2026-11-27"], "2026-11-27", [26, 27]),
        (["3", "4"], "4", [3, 4]),
        (["it's a", "it's b"], "it's b", None),
    ],
)
def test_what_is_no_seed_is_refused_with_remedies_that_work_when_they_are_typed(names, at, seeds, tmp_path, capsys):
    groups = [tmp_path / group for group in ("base", "new")]
    for group, gain in zip(groups, (0, 0.2), strict=True):
        for seed, name in enumerate(names):
            write_samples(group / name, [row(i, v) for i, v in enumerate(hits(seed, gain))])
    typed = [groups[0], "--with", groups[1]]
    said = shlex.split(refused(capsys, *typed).replace(", or pass --latest", "").replace("; if", " if"))
    remedies = [said[said.index(option) : said.index(option) + 2] for option in ("--at", "--seed-from")]
    assert remedies[0] == ["--at", at]
    found = read(capsys, *typed, *remedies[0])
    assert (found["claim"], found["seeds"]) == ("checkpoints", 1)
    assert found["effect"] == pytest.approx(np.mean(hits(len(names) - 1, 0.2) - hits(len(names) - 1)))
    if seeds is None:
        assert remedies[1][1] == "REGEX"
    else:
        assert read(capsys, *typed, *remedies[1])["paired_seeds"] == seeds
    assert "no file or folder has this name" in refused(capsys, *typed, "--at", "checkpoint-7")


def test_what_a_folder_holds_besides_its_evaluations_is_counted(groups, tmp_path, capsys):
    new = Path(groups[1])
    (new / "seed2").rename(tmp_path / "elsewhere")
    (new / "seed2").symlink_to(tmp_path / "elsewhere")
    (stale := new / "seed0/.ipynb_checkpoints").mkdir()
    (path,) = (new / "seed0").glob("samples_*")
    worse = "".join(json.dumps(row(i, 0.0)) + "\n" for i in range(ITEMS))
    (stale / f"{path.stem}-checkpoint.jsonl").write_text(worse)
    for beside in (path, next(path.parent.glob("results_*"))):
        beside.with_name(f"._{beside.name}").write_bytes(b"\0\5\x16\7")  # as macOS leaves them on other disks
    for other in ("table.csv", "log.txt", "notes.json"):
        (new / other).write_text("{}")
    found = read(capsys, groups[0], "--with", new)
    assert found["paired_seeds"] == [0, 1, 2]
    assert found["tasks"][0]["after"] == pytest.approx(np.mean([hits(seed, 0.25) for seed in range(3)]))
    notes = [note.removeprefix(f"{new}: ") for note in found["notes"]]
    assert "3 other files were not read (log.txt, notes.json, table.csv); to read a table, name its file" in notes
    assert any(
        note.startswith("hidden files, temporary files or backup copies are left out (3): seed0/._results")
        for note in notes
    )


def test_the_latest_is_by_the_date_in_any_writers_name_and_a_tie_is_refused(tmp_path, capsys):
    line = {"doc_id": 0, "target": "a", "filtered_resps": ["a"], "doc_hash": "x", "input": "q", "acc": 1.0}
    old, new = (tmp_path / f"new/{day}_100000_samples_toy.jsonl" for day in ("20250601", "20250602"))
    base = tmp_path / "base/20250601_100000_samples_toy.jsonl"
    for path, value in ((base, 0.0), (new, 1.0), (old, 0.0)):  # the older was written, or copied, last
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line | {"doc_id": i, "acc": value}) + "\n" for i in range(4)))
    assert read(capsys, base.parent, "--with", new.parent, "--latest")["effect"] == 1
    (new.parent / "again").mkdir()
    new.rename(new.parent / "again" / old.name)
    assert "is exactly as new as" in refused(capsys, base.parent, "--with", new.parent, "--latest")


def test_a_run_evaluated_twice_is_refused_unless_the_latest_is_asked_for(groups, capsys):
    (path,) = Path(groups[1], "seed0").glob("samples_*")
    again = path.with_name(path.name.replace("2026-01-02", "2026-01-03"))
    again.write_text("".join(json.dumps(row(i, 1.0)) + "\n" for i in range(ITEMS)))
    assert "was also evaluated on toy in" in refused(capsys, groups[0], "--with", groups[1])
    assert read(capsys, groups[0], "--with", groups[1], "--latest")["tasks"][0]["after"] == pytest.approx(
        (1 + hits(1, 0.25).mean() + hits(2, 0.25).mean()) / 3
    )


def table(path, values, seeds=5, items=200):
    """A table of 0/1 values; values: scale, and by how much items are more often right."""
    scale, gain = values
    rows = [f"{i},{s},{scale * v:g}" for s in range(seeds) for i, v in enumerate(hits(s, gain, items))]
    path.write_text("\n".join(["item,seed,value", *rows]) + "\n")
    return path


@pytest.mark.parametrize("linked", [os.symlink, os.link, shutil.copy])
def test_one_evaluation_in_both_groups_passes_nothing(tmp_path, capsys, linked):
    """By a link it is refused; a copy has the same values throughout."""
    one, other = table(tmp_path / "a.csv", (1, 0)), tmp_path / "b.csv"
    linked(one, other)
    words = one, "--with", other, "--margin", "0.1", "--direction", "max", "--require", "not-worse"
    if linked is not shutil.copy:
        assert f"belongs to both baseline and candidate (also named as {one}" in refused(capsys, *words)
        return
    _, out, _ = typed(capsys, "compare", *words)
    said = " ".join(out.split())
    assert (
        "all values of both variants are identical; check that the variants are not the same evaluation. task" in said
    )
    assert "MDE (80% power) not known" in said  # 0 would say that any difference would have been seen
    assert typed(capsys, "compare", *words)[0] == 12
    assert typed(capsys, "compare", *words, "--allow", "identical")[0] == 0


@pytest.mark.parametrize(
    ("groups", "words", "said"),
    [
        (
            ((1, 0), (100, -0.2)),
            ["--margin", "1"],
            "and no value lies between 1 and 100, so they may mix shares with percentages or ratings",
        ),
        (((1, 0), (1, -0.2)), ["--margin", "1"], "margin 1 is as wide as the scale, because the worst value"),
        (((1, 0), (1, 0.3), 9), ["--common-items", "--margin", "0.1"], "only 9 of 200 items are common to all runs"),
    ],
)
def test_what_is_doubtful_passes_no_requirement(tmp_path, capsys, groups, words, said):
    first, second, *left = groups
    a = table(tmp_path / "a.csv", first)
    b = table(tmp_path / "b.csv", second, items=left[0] if left else 200)
    asked = [a, "--with", b, "--direction", "max", *words]
    assert said in refused(capsys, *asked, "--require", "not-worse")
    assert said in " ".join(typed(capsys, "compare", *asked)[1].split())
    assert said in typed(capsys, "compare", *asked, "--markdown")[1].replace("\\", "")


def ratings(path, level, seeds=6):
    """Ratings of 1 to 5, as a judge of answers gives them."""
    rng = np.random.default_rng(round(10 * level))
    rows = [f"q{i},{s},{min(5, max(1, round(rng.normal(level, 0.8))))}" for s in range(seeds) for i in range(150)]
    path.write_text("\n".join(["item,seed,score", *rows]) + "\n")
    return path


def test_a_requirement_without_a_margin_or_a_direction_is_refused(tmp_path, capsys):
    """Half a point of five lower was "equivalent" by a guessed margin of 1."""
    words = ratings(tmp_path / "a.csv", 3.6), "--with", ratings(tmp_path / "b.csv", 3.2), "--metric", "score"
    found = read(capsys, *words)
    assert (found["verdict"], found["margin"], found["direction"]) == ("worse", None, "max")
    assert "assuming larger is better (not stated in the files); override with --direction" in found["notes"]
    assert "larger is better, no margin" in told(capsys, *words)
    for required in ("not-worse", "better", "equivalent"):
        said = refused(capsys, *words, "--require", required, "--direction", "max")
        assert "--margin: is not stated; the values lie between 1 and 5 (SD 0." in said
        said = refused(capsys, *words, "--require", required, "--margin", "0.1")
        assert "--direction: is not stated, and neither the files nor the name 'score' implies a direction" in said
    assert typed(capsys, "compare", *words, "--require", "not-worse", "--margin", "0.1", "--direction", "max")[0] == 10
    verdict = ablation.compare(*(str(tmp_path / f"{name}.csv") for name in "ab"), metric="score")
    assert (verdict.verdict, verdict.margin) == ("worse", None)
    assert "no margin" in str(verdict)


def test_without_a_margin_nothing_is_equivalent_unless_items_are_right_or_wrong(tmp_path, capsys):
    rng = np.random.default_rng(0)
    level = rng.uniform(0.2, 0.8, (1, 400))
    for step, equivalent in ((1, True), (0.5, False)):
        values = [(rng.random((8, 400)) < level) * 1.0 for _ in "ab"]
        values = [np.where(rng.random(each.shape) < 0.5, each, step * each) for each in values]
        assert (ablation.judge(*values, margin=0.2).verdict, equivalent) == ("equivalent", equivalent)
        verdict = ablation.judge(*values)
        assert (verdict.margin, verdict.verdict) == ((0.01, "undecided") if equivalent else (None, "undecided"))
        assert (
            any(note.startswith("the margin is 0.01, because every value is 0 or 1") for note in verdict.notes)
            == equivalent
        )
    same = ablation.judge(values[0], values[0])
    assert same.verdict != "equivalent"


def test_a_known_name_tells_the_direction_and_any_other_is_asked_for(tmp_path, capsys):
    a, b = table(tmp_path / "a.csv", (1, 0)), table(tmp_path / "b.csv", (1, 0.3))
    for name, status in (("val_acc", 0), ("eval_loss", 10), ("ece", 10), ("loss_scale", 2)):
        for path in (a, b):
            path.write_text(f"item,seed,{name}\n" + path.read_text().partition("\n")[2])
        words = [a, "--with", b, "--metric", name, "--margin", "0.05"]
        assert typed(capsys, "compare", *words, "--require", "not-worse")[0] == status, name
        note = "assuming larger is better (not stated in the files); override with --direction"
        assert (note in read(capsys, *words)["notes"]) == (status == 2), name
