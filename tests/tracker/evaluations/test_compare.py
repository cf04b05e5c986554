"""`ablation compare` from files to what it prints: verdicts, items, and one line for each thing that is wrong."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.tracker.evaluations.samples import row, write_samples
from tracker.cli.main import main
from tracker.judge.statistics import contrast

ITEMS = 60


def hits(seed, gain=0.0, items=ITEMS):
    """0/1 values of items of different ease; the same items for all arms."""
    ease = np.random.default_rng(0).uniform(0.2, 0.8, items)
    return (np.random.default_rng([1, seed]).uniform(size=items) < ease + gain).astype(float)


def arm(folder, gain=0.0, seeds=3, **options):
    for seed in range(seeds):
        write_samples(folder / f"seed{seed}", [row(i, v, **options) for i, v in enumerate(hits(seed, gain))])
    return str(folder)


@pytest.fixture
def arms(tmp_path):
    return arm(tmp_path / "base"), arm(tmp_path / "new", gain=0.25)


def told(capsys, *words):
    """Status 0 and what was printed."""
    status = main(["compare", *map(str, words)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(capsys, *words):
    """Status 2, nothing printed, and one line."""
    status = main(["compare", *map(str, words)])
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


def read(capsys, *words):
    (found,) = json.loads(told(capsys, *words, "--json"))
    return found


def test_the_numbers_are_those_of_the_judge(arms, capsys):
    found = read(capsys, arms[0], "--with", arms[1])
    values = np.array([[hits(seed, gain) for seed in range(3)] for gain in (0.25, 0.0)])
    alone = contrast([values], (1, -1), "max")
    assert found["effect"] == pytest.approx(values[0].mean() - values[1].mean())
    assert (found["low"], found["high"], found["p"]) == pytest.approx((alone.low, alone.high, alone.p))
    assert (found["seeds"], found["items"], found["child"], found["parent"]) == (3, ITEMS, "new", "base")
    assert found["verdict"] == "better"
    assert found["tasks"][0]["before"] == pytest.approx(values[1].mean())
    assert found["tasks"][0]["stderr_before"] == 0.02
    assert found["standard_error_unpaired"] == pytest.approx(np.hypot(0.02, 0.02))


def test_the_text_says_it_all(arms, capsys):
    said = told(capsys, arms[0], "--with", arms[1])
    assert said.startswith("new against base: better\n")
    for word in (
        "effect",
        "95%",
        "sign flips",
        "found with 80%",
        "seeds              3 (0, 1, 2)",
        "margin 0.01",
        "± 0.0200",
    ):
        assert word in said
    assert "best  " in said
    assert "Q: question" in said
    assert "wanted: yes; base: no; new: yes" in said


def test_items_that_changed_are_those_whose_mean_over_seeds_did(arms, capsys):
    found = read(capsys, arms[0], "--with", arms[1], "--flips", 2)
    before, after = (np.mean([hits(seed, gain) for seed in range(3)], axis=0) for gain in (0.0, 0.25))
    assert found["items_better"] == int((after > before + 1e-9).sum())
    assert found["items_worse"] == int((after < before - 1e-9).sum())
    assert len(found["best"]) == 2
    assert found["best"][0]["change"] == pytest.approx((after - before).max())
    place = int(found["best"][0]["text"]["asked"].removeprefix("Q: question "))
    seed = found["best"][0]["seed"]
    assert (found["best"][0]["answer_before"], found["best"][0]["text"]["answered"]) == ("no", "yes")
    assert (hits(seed)[place], hits(seed, 0.25)[place]) == (0, 1)
    assert (found["best"][0]["before"], found["best"][0]["after"]) == pytest.approx((before[place], after[place]))


def test_one_seed_is_judged_by_its_items_alone_and_says_so(tmp_path, capsys):
    sides = arm(tmp_path / "base", seeds=1), arm(tmp_path / "new", gain=0.25, seeds=1)
    found = read(capsys, sides[0], "--with", sides[1])
    alone = contrast([np.array([[hits(0, 0.25)], [hits(0)]])], (1, -1), "max")
    assert found["verdict"] == "undecided"
    assert found["p"] is None
    assert found["item_p"] == pytest.approx(alone.item_p)
    assert (found["low"], found["high"]) == pytest.approx((alone.low, alone.high))
    said = told(capsys, sides[0], "--with", sides[1])
    assert "none with one seed" in said
    assert "item noise alone would say better" in said


def test_too_few_items_for_one_seed_say_so(tmp_path, capsys):
    for name, last in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.csv").write_text(f"item,value\nx,1\ny,0\nz,{last}\n")
    said = told(capsys, tmp_path / "a.csv", "--with", tmp_path / "b.csv")
    assert "none with one seed; the items are too few" in said
    assert "found with 80%     not known" in said
    assert "standard error     not known" in said


def test_files_without_seeds_in_their_paths_are_one_run_each(tmp_path, capsys):
    a, b = (
        write_samples(tmp_path / name, [row(i, v) for i, v in enumerate(hits(0, g))])
        for name, g in (("a", 0), ("b", 0.2))
    )
    assert read(capsys, a, "--with", b)["seeds"] == 1


@pytest.mark.parametrize(
    ("names", "pattern"),
    [(("seed=7", "Seed_8"), None), (("7", "8"), None), (("run7", "run8"), None), (("x7y1", "x8y1"), r"x(\d+)y")],
)
def test_the_seed_is_found_in_the_path(names, pattern, tmp_path, capsys):
    for side, gain in (("base", 0), ("new", 0.2)):
        for seed, name in enumerate(names):
            write_samples(tmp_path / side / name / "model", [row(i, v) for i, v in enumerate(hits(seed, gain))])
    more = ["--seed-from", pattern] if pattern else []
    assert read(capsys, tmp_path / "base", "--with", tmp_path / "new", *more)["paired_seeds"] == [7, 8]


def test_seeds_without_a_partner_are_left_out_and_named(tmp_path, capsys):
    sides = arm(tmp_path / "base", seeds=4), arm(tmp_path / "new", gain=0.2, seeds=2)
    found = read(capsys, sides[0], "--with", sides[1])
    assert found["paired_seeds"] == [0, 1]
    assert any("seeds 2, 3 of base have no partner" in note for note in found["notes"])


def test_the_first_filter_is_taken_unless_another_is_named(tmp_path, capsys):
    for side, gain in (("base", 0), ("new", 0.2)):
        for seed in range(2):
            values = hits(seed, gain)
            rows = [row(i, v, name="strict") for i, v in enumerate(values)] + [
                row(i, 1.0, name="loose") for i in range(ITEMS)
            ]
            write_samples(tmp_path / side / f"seed{seed}", rows)
    sides = tmp_path / "base", "--with", tmp_path / "new"
    found = read(capsys, *sides)
    assert found["effect"] > 0
    assert any("filter strict; also there: loose (--filter)" in note for note in found["notes"])
    assert read(capsys, *sides, "--filter", "loose")["effect"] == 0
    assert "the file has strict, loose" in refused(capsys, *sides, "--filter", "lose")


def test_rows_of_an_item_that_was_asked_several_times_are_averaged(tmp_path, capsys):
    for side, second in (("base", 0.0), ("new", 1.0)):
        rows = [row(i, 1.0) for i in range(ITEMS)] + [row(i, second) for i in range(ITEMS)]
        write_samples(tmp_path / side / "seed0", rows)
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new")
    assert (found["effect"], found["items"]) == (0.5, ITEMS)


def test_documents_that_the_data_hold_twice_are_items_of_one_cluster(tmp_path, capsys):
    for side, gain in (("base", 0), ("new", 0.2)):
        values = hits(0, gain)
        rows = [row(i, v, question=f"question {i // 2}") for i, v in enumerate(values)]
        write_samples(tmp_path / side / "seed0", rows)
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new")
    alone = contrast([np.array([[hits(0, 0.2)], [hits(0)]])], (1, -1), "max", clusters=[np.arange(ITEMS) // 2])
    assert (found["low"], found["high"]) == pytest.approx((alone.low, alone.high))


def test_smaller_is_better_where_the_results_say_so(tmp_path, capsys):
    for side, gain in (("base", 0), ("new", 0.25)):
        for seed in range(3):
            write_samples(
                tmp_path / side / f"seed{seed}", [row(i, v) for i, v in enumerate(hits(seed, gain))], larger=False
            )
    sides = tmp_path / "base", "--with", tmp_path / "new"
    assert read(capsys, *sides)["verdict"] == "worse"
    assert read(capsys, *sides, "--direction", "max")["verdict"] == "better"
    assert read(capsys, *sides, "--direction", "target=0.5")["direction"] == {"target": 0.5}


def test_tasks_of_other_metrics_are_compared_one_at_a_time(tmp_path, capsys):
    for side, gain in (("base", 0), ("new", 0.25)):
        for seed in range(2):
            values = hits(seed, gain)
            for task, metric in (("toy", "acc"), ("other", "exact_match")):
                rows = [row(i, v, metric=metric) for i, v in enumerate(values)]
                write_samples(tmp_path / side / f"seed{seed}" / task, rows, task=task)
    sides = tmp_path / "base", "--with", tmp_path / "new"
    said = refused(capsys, *sides)
    assert "toy has acc" in said
    assert "--tasks" in said
    assert read(capsys, *sides, "--tasks", "other")["metric"] == "exact_match"
    assert "was not evaluated on it" in refused(capsys, *sides, "--tasks", "gone")


# What was asked differently is not paired.


def test_another_prompt_is_refused_with_the_items_and_may_be_allowed(tmp_path, capsys):
    sides = arm(tmp_path / "base"), arm(tmp_path / "new", prompt="Question: {}")
    said = refused(capsys, sides[0], "--with", sides[1])
    assert f"the prompt of {ITEMS} of {ITEMS} items of toy" in said
    assert "and 57 more" in said
    assert "--allow prompt" in said
    found = read(capsys, sides[0], "--with", sides[1], "--allow", "prompt")
    assert any("as --allow prompt permits" in note for note in found["notes"])


def test_one_item_of_another_target_is_named(tmp_path, capsys):
    base = write_samples(tmp_path / "base" / "seed0", [row(i, v) for i, v in enumerate(hits(0))])
    rows = [row(i, v, target="no" if i == 7 else "yes") for i, v in enumerate(hits(0))]
    new = write_samples(tmp_path / "new" / "seed0", rows)
    said = refused(capsys, base, "--with", new)
    assert "the target of 1 of 60 items" in said
    assert rows[7]["doc_hash"][:12] in said


def test_another_version_of_the_task_is_refused(tmp_path, capsys):
    base, new = (
        write_samples(tmp_path / name / "seed0", [row(i, v) for i, v in enumerate(hits(0))], version=version)
        for name, version in (("base", 1.0), ("new", 2.0))
    )
    assert "version 2.0, and 1.0" in refused(capsys, base, "--with", new)
    assert read(capsys, base, "--with", new, "--allow", "task")["effect"] == 0


def test_samples_that_are_not_those_of_their_results_are_refused(arms, capsys):
    (path,) = Path(arms[1], "seed1").glob("samples_*")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-5]))
    assert "task_hashes" in refused(capsys, arms[0], "--with", arms[1])


def test_items_that_one_side_lacks_are_counted_and_named_or_left_out(arms, tmp_path, capsys):
    short = tmp_path / "short"
    for seed in range(3):
        write_samples(short / f"seed{seed}", [row(i, v) for i, v in enumerate(hits(seed)[:50])])
    said = refused(capsys, arms[0], "--with", short)
    assert "it lacks 10 (" in said
    assert "--common-items" in said
    found = read(capsys, arms[0], "--with", short, "--common-items")
    assert (found["items"], found["effect"]) == (50, 0)


def test_seeds_of_one_side_with_other_items(arms, capsys):
    for side in arms:
        write_samples(Path(side) / "seed2", [row(i, v) for i, v in enumerate(hits(2)[:50])])
    assert "it lacks 10 (" in refused(capsys, arms[0], "--with", arms[1])
    assert read(capsys, arms[0], "--with", arms[1], "--common-items")["items"] == 50


def test_no_common_item(arms, tmp_path, capsys):
    write_samples(tmp_path / "other" / "seed0", [row(i, v, question=f"another {i}") for i, v in enumerate(hits(0))])
    assert "no item of toy is in common" in refused(capsys, arms[0], "--with", tmp_path / "other")


# Bad input: one line, status 2.


def test_what_is_wrong_with_the_files_is_one_line(arms, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    notes = other / "notes.jsonl"
    notes.write_text("not json\n")
    assert "is no evaluation that can be read" in refused(capsys, arms[0], "--with", notes)
    assert "no evaluation below this folder" in refused(capsys, arms[0], "--with", other)
    assert "no such file" in refused(capsys, arms[0], "--with", tmp_path / "gone*")
    (results,) = Path(arms[0], "seed0").glob("results_*")
    assert "--log_samples" in refused(capsys, arms[0], "--with", results)
    empty = other / "empty.jsonl"
    empty.write_text("")
    assert "is no evaluation" in refused(capsys, arms[0], "--with", empty)
    assert "is on both sides" in refused(capsys, arms[0], "--with", arms[0])
    assert "two evaluations are needed" in refused(capsys, arms[0])
    os.mkfifo(other / "samples.jsonl")
    assert "is no file" in refused(capsys, arms[0], "--with", other / "samples.jsonl")


@pytest.mark.parametrize(
    "words",
    [
        ("--margin", "0"),
        ("--margin", "-1"),
        ("--margin", "nan"),
        ("--flips", "-1"),
        ("--direction", "up"),
        ("--direction", "target=x"),
        ("--names", "one", "one"),
    ],
)
def test_options_that_make_no_sense(words, arms, capsys):
    assert words[0] in refused(capsys, arms[0], "--with", arms[1], *words)


def test_half_a_line_is_no_evaluation(arms, capsys):
    (path,) = Path(arms[1], "seed2").glob("samples_*")
    path.write_text(path.read_text()[:-40])
    said = refused(capsys, arms[0], "--with", arms[1])
    assert "cannot be read" in said
    assert path.name in said


def test_an_arm_without_seeds_is_refused(arms, tmp_path, capsys):
    alone = write_samples(tmp_path / "alone", [row(i, v) for i, v in enumerate(hits(0))])
    assert "alone is one run without a seed, base has seeds 0, 1, 2" in refused(
        capsys, arms[0], "--with", alone, "--names", "base", "alone"
    )


def test_seeds_that_no_run_shares_and_seeds_that_cannot_be_told(arms, tmp_path, capsys):
    for name in ("seed7", "seed8"):
        write_samples(tmp_path / "far" / name, [row(i, v) for i, v in enumerate(hits(0))])
    assert "none in common" in refused(capsys, arms[0], "--with", tmp_path / "far")
    for name in ("x", "y"):
        write_samples(tmp_path / "nameless" / name, [row(i, v) for i, v in enumerate(hits(0))])
    assert "--seed-from" in refused(capsys, arms[0], "--with", tmp_path / "nameless")
    assert "finds no number" in refused(capsys, arms[0], "--with", arms[1], "--seed-from", r"run(\d+)")
    assert "no regular expression" in refused(capsys, arms[0], "--with", arms[1], "--seed-from", "(")


def test_a_run_evaluated_twice_is_refused_unless_the_latest_is_asked_for(arms, capsys):
    (path,) = Path(arms[1], "seed0").glob("samples_*")
    again = path.with_name(path.name.replace("2026-01-02", "2026-01-03"))
    again.write_text("".join(json.dumps(row(i, 1.0)) + "\n" for i in range(ITEMS)))
    assert "was evaluated on toy in" in refused(capsys, arms[0], "--with", arms[1])
    assert read(capsys, arms[0], "--with", arms[1], "--latest")["tasks"][0]["after"] == pytest.approx(
        (1 + hits(1, 0.25).mean() + hits(2, 0.25).mean()) / 3
    )


def test_rows_that_stand_twice_are_refused(tmp_path, capsys):
    base = write_samples(tmp_path / "base" / "seed0", [row(i, v) for i, v in enumerate(hits(0))])
    rows = [row(i, v) for i, v in enumerate(hits(0))]
    new = write_samples(tmp_path / "new" / "seed0", [*rows, rows[3]])
    said = refused(capsys, base, "--with", new)
    assert "stands 2 times, others 1" in said
    assert rows[3]["doc_hash"][:12] in said


@pytest.mark.parametrize(
    ("value", "words"), [(float("nan"), "no finite value"), (None, "no finite value"), ([1, 2], "of all items at once")]
)
def test_a_value_that_is_no_number_is_refused_with_its_item(value, words, tmp_path, capsys):
    base = write_samples(tmp_path / "base" / "seed0", [row(i, v) for i, v in enumerate(hits(0))])
    rows = [row(i, value if i == 5 else v) for i, v in enumerate(hits(0))]
    new = write_samples(tmp_path / "new" / "seed0", rows, results=False)
    said = refused(capsys, base, "--with", new)
    assert words in said
    assert rows[5]["doc_hash"][:12] in said


def test_paths_with_spaces_quotes_and_signs_of_patterns(tmp_path, capsys):
    sides = [tmp_path / name for name in ("it's a [base]", 'the "new" * one?')]
    for side, gain in zip(sides, (0, 0.25), strict=True):
        arm(side, gain)
    assert read(capsys, sides[0], "--with", sides[1])["verdict"] == "better"


def test_patterns_in_quotes_are_expanded(arms, capsys):
    files = [f"{side}/*/samples_*.jsonl" for side in arms]
    assert read(capsys, files[0], "--with", files[1])["seeds"] == 3


# Plain tables.


def table(path, seeds=3, gain=0.0, **more):
    rows = [
        {"item": f"i{at}", "value": value, "seed": seed, **{key: f(at) for key, f in more.items()}}
        for seed in range(seeds)
        for at, value in enumerate(hits(seed, gain))
    ]
    frame = pd.DataFrame(rows)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_plain_table_of_any_form_gives_the_same_numbers(suffix, arms, tmp_path, capsys):
    a, b = table(tmp_path / f"base{suffix}"), table(tmp_path / f"new{suffix}", gain=0.25)
    found, same = read(capsys, a, "--with", b), read(capsys, arms[0], "--with", arms[1])
    for key in ("effect", "low", "high", "p", "mde", "verdict", "seeds", "items", "child", "parent"):
        assert found[key] == pytest.approx(same[key]), key


def test_subsets_clusters_and_words_of_a_table(tmp_path, capsys):
    more = {
        "subset": lambda at: "odd" if at % 2 else "even",
        "cluster": lambda at: f"c{at // 4}",
        "text": lambda at: f"What is {at}?",
        "answer": lambda at: f"answer {at}",
    }
    a, b = table(tmp_path / "a.csv", **more), table(tmp_path / "b.csv", gain=0.25, **more)
    found = read(capsys, a, "--with", b)
    values = np.array([[hits(seed, gain) for seed in range(3)] for gain in (0.25, 0.0)])
    at = np.array(sorted(range(ITEMS), key=lambda i: f"i{i}"))
    parts = [at[at % 2 == rest] for rest in (0, 1)]
    alone = contrast([values[:, :, part] for part in parts], (1, -1), "max", clusters=[part // 4 for part in parts])
    assert [task["subset"] for task in found["tasks"]] == ["even", "odd"]
    assert (found["effect"], found["low"], found["high"]) == pytest.approx((alone.effect, alone.low, alone.high))
    assert found["best"][0]["text"]["asked"] == f"What is {found['best'][0]['item'][1:]}?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,score\na,1\n", "has no column 'value', only item, score"),
        ("item,value\na,1\na,0\n", "stands 2 times"),
        ("item,value\na,1\nb,nan\n", "item b has no finite value"),
        ("item,value\na,1\nb,\n", "item b has no finite value"),
        ("item,value\na,1\nb,yes\n", "item b has no finite value"),
        ("item,value\na,1\n,0\n", "row 2 has none"),
        ("item,value,seed\na,1,one\n", "row 1 has no seed"),
        ("item,value,seed\na,1,0\nb,1,\n", "row 2 has no seed"),
        ("item,value\n", "has no rows"),
        ("", "is empty"),
    ],
)
def test_a_table_that_is_wrong(text, words, tmp_path, capsys):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("item,value\na,1\nb,0\n")
    bad.write_text(text)
    said = refused(capsys, good, "--with", bad)
    assert words in said
    assert "bad.csv" in said


def test_values_of_an_unknown_scale_need_a_margin(tmp_path, capsys):
    for name, shift in (("a", 0), ("b", 3)):
        frame = pd.DataFrame({"item": range(40), "value": np.random.default_rng(0).normal(500, 9, 40) + shift})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    sides = tmp_path / "a.csv", "--with", tmp_path / "b.csv"
    assert "--margin" in refused(capsys, *sides)
    assert read(capsys, *sides, "--margin", "5")["effect"] == pytest.approx(3)


def test_other_shapes_of_the_output(arms, capsys, tmp_path):
    rows = list(csv.DictReader(io.StringIO(told(capsys, arms[0], "--with", arms[1], "--csv"))))
    assert [(r["parent"], r["child"], r["verdict"]) for r in rows] == [("base", "new", "better")]
    page = tmp_path / "page.html"
    said = told(capsys, arms[0], "--with", arms[1], "--page", page)
    assert said.startswith("new against base: better")
    html = page.read_text()
    assert "new against base" in html
    assert "made elsewhere" in html
    assert "model_args" in html  # the settings that differ are the change
    assert "Items that changed most" in html
    assert "Q: question" in html
    assert "certify" not in html
    (edge,) = json.loads(told(capsys, arms[0], "--with", arms[1], "--json"))
    assert f"{edge['effect']:+.3f}" in html


def test_a_study_of_three_variants(arms, tmp_path, capsys):
    arm(tmp_path / "third", gain=0.26)
    (tmp_path / "my.yaml").write_text(
        "title: Toy\nmetric: acc\nanalysis: {margin: 0.02}\nvariants:\n"
        "  third: {extends: new, why: more, files: [third]}\n"
        "  base: {files: ['base/*/samples_*.jsonl']}\n  new: {extends: base, why: a gain, files: [new]}\n"
    )
    rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json"))
    assert [(r["parent"], r["child"]) for r in rows] == [("base", "new"), ("new", "third")]
    assert rows[1]["root"] == "base"
    assert rows[0]["p_adjusted"] >= rows[0]["p"]
    assert told(capsys, "--study", tmp_path / "my.yaml", "--page", tmp_path / "p.html").count(" against ") >= 2


@pytest.mark.parametrize(
    ("edges", "pairs"),
    [
        ("root", {("base", "new"), ("base", "third")}),
        ("[[third, base], [new, third]]", {("base", "third"), ("third", "new")}),
    ],
)
def test_a_study_of_other_edges(edges, pairs, arms, tmp_path, capsys):
    arm(tmp_path / "third", gain=0.26)
    (tmp_path / "my.yaml").write_text(
        f"analysis: {{edges: {edges}}}\nvariants:\n  base: {{files: [base]}}\n"
        "  new: {extends: base, files: [new]}\n  third: {extends: new, files: [third]}\n"
    )
    rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json", "--page", tmp_path / "p.html"))
    assert {(r["parent"], r["child"]) for r in rows} == pairs
    effects = {(r["parent"], r["child"]): r["effect"] for r in rows}
    if ("base", "new") in effects:
        assert effects["base", "new"] == read(capsys, *[arms[0], "--with", arms[1]])["effect"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variants: {a: {files: [base]}, b: {extends: c, files: [new]}}", "there is no such variant"),
        ("variants: {a: {extends: b, files: [base]}, b: {extends: a, files: [new]}}", "circle"),
        ("variants: {a: {files: [base]}, b: {files: [new]}}", "nothing is compared"),
        ("analysis: {edges: root}\nvariants: {a: {files: [base]}, b: {files: [new]}}", "nothing is compared"),
        ("variants: {a: {files: [base]}, b: {extends: a, file: [new]}}", "file"),
        ("variants: {a: {files: [base]}}", "variants"),
        ("variants: {a: {files: [base]}, b: {extends: a, files: [gone]}}", "no such file"),
    ],
)
def test_a_study_that_is_wrong(text, words, arms, tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(text)
    assert words in refused(capsys, "--study", tmp_path / "my.yaml")
    assert "--metric" in refused(capsys, "--study", tmp_path / "my.yaml", "--metric", "acc")


def test_two_times_five_seeds_of_ten_thousand_items_cost_little(tmp_path):
    """2 s on a machine of its own; what is allowed here is for a busy one. A whole bootstrap of items took 650 MB."""
    pad = "some words of a prompt " * 20
    lines = [json.dumps(row(i, 0.0, question=f"{pad}{i}")) for i in range(10_000)]
    values = np.random.default_rng(0)
    for side in ("base", "new"):
        for seed in range(5):
            folder = tmp_path / side / f"seed{seed}"
            folder.mkdir(parents=True)
            drawn = values.integers(0, 2, len(lines))
            text = "\n".join(f"{line[:-4]}{value}.0}}" for line, value in zip(lines, drawn, strict=True))
            (folder / "samples_toy_2026-01-02T03-04-05.jsonl").write_text(text)
    command = [
        sys.executable,
        "-m",
        "tracker",
        "compare",
        str(tmp_path / "base"),
        "--with",
        str(tmp_path / "new"),
        "--json",
    ]
    code = (
        "import json, resource, subprocess, sys; done = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss, done.stdout, done.stderr]))"
    )
    root = Path(__file__).resolve().parents[3]
    measured = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=root, capture_output=True, text=True, check=True
    )
    status, seconds, kilobytes, out, error = json.loads(measured.stdout)
    assert status == 0, error
    (found,) = json.loads(out)
    assert (found["seeds"], found["items"]) == (5, 10_000)
    assert seconds < 6
    assert kilobytes < 550_000


def test_it_needs_no_project_and_loads_no_heavy_library(arms, tmp_path):
    code = (
        "import sys; from tracker.cli.main import main; status = main(sys.argv[1:]);"
        "heavy = {'torch', 'transformers', 'snakemake', 'matplotlib'} & {name.split('.')[0] for name in sys.modules};"
        "print(heavy, file=sys.stderr); sys.exit(status or bool(heavy))"
    )
    root = Path(__file__).resolve().parents[3]
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [sys.executable, "-c", code, "compare", arms[0], "--with", arms[1], "--page", str(tmp_path / "p.html")]
    done = subprocess.run(
        command, cwd=empty, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(empty.iterdir())
