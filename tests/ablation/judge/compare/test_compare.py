"""`ablation compare` from files to what it prints: verdicts, seeds, items, pages, and what it costs."""

import csv
import io
import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from ablation.cli.main import main
from ablation.contract.display import printable
from ablation.judge.statistics import contrast
from tests.ablation.readers.command import read, refused, told
from tests.ablation.readers.samples import ITEMS, hits, row, write_group, write_groups, write_samples
from tests.ablation.show.elements import unfolded


def table(path, values, more="", head="item,value"):
    """A table of the values of items."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{head}\n" + "".join(f"i{k},{value:g}{more}\n" for k, value in enumerate(values)))
    return path


def test_the_numbers_are_those_of_the_judge(groups, capsys):
    found = read(capsys, groups[0], "--with", groups[1])
    values = np.array([[hits(seed, gain) for seed in range(3)] for gain in (0.25, 0.0)])
    alone = contrast([values], (1, -1), "max")
    assert found["effect"] == pytest.approx(values[0].mean() - values[1].mean())
    assert (found["low"], found["high"], found["p"]) == pytest.approx((alone.low, alone.high, alone.p))
    assert (found["seeds"], found["items"], found["child"], found["parent"]) == (3, ITEMS, "new", "base")
    assert found["verdict"] == "better"
    assert found["tasks"][0]["before"] == pytest.approx(values[1].mean())
    assert found["tasks"][0]["stderr_before"] == 0.02
    assert found["standard_error_unpaired"] == pytest.approx(np.hypot(0.02, 0.02))
    change = (values[0] - values[1]).mean(axis=0)
    said = told(capsys, groups[0], "--with", groups[1])
    assert f"items: {(change > 0).sum()} better, {(change < 0).sum()} worse" in said


@pytest.mark.parametrize("case", ["without", "samples", "copied"])
def test_the_only_task_has_the_effect_and_interval_of_the_comparison(case, tmp_path, capsys):
    """The task was judged by all runs, samples and copied seeds, which the verdict left out or counted otherwise."""
    rng = np.random.default_rng(1)
    groups = []
    for name, gain in (("base", 0.0), ("new", 0.2)):
        rows = []
        once = rng.random(40) < 0.4 + gain
        for seed, item, sample in itertools.product(range(5), range(40), range(1 + 3 * (case == "samples"))):
            right = once[item] if case == "copied" and name == "new" else rng.random() < 0.4 + gain * (seed != 3)
            rows.append(f"i{item},{seed},{sample},{right:d}")
        groups.append(tmp_path / f"{name}.csv")
        groups[-1].write_text("\n".join(["item,seed,sample,value", *rows]))
    more = {"without": ["--without", "new:3"], "samples": ["--pass-at", 2], "copied": []}[case]
    found = read(capsys, groups[0], "--with", groups[1], *more)
    [task] = found["tasks"]
    keys = ("effect", "low", "high")
    assert [task[key] for key in keys] == pytest.approx([found[key] for key in keys], rel=1e-12)
    assert task["after"] - task["before"] == pytest.approx(found["effect"])
    if case == "without":  # of the items, too, seed 3 is left out
        kept = (pd.read_csv(path).query("seed != 3").groupby("item")["value"].mean() for path in groups)
        change = -(next(kept) - next(kept)).round(9)
        assert (found["items_better"], found["items_worse"]) == ((change > 0).sum(), (change < 0).sum())


def test_logarithms_are_compared_by_numbers_and_on_the_page(tmp_path, capsys):
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0, 1, 60) + rng.normal(0, 0.1, (2, 60)) + np.array([[0.0], [0.1]]))
    before, after = (table(tmp_path / name / "of.csv", side) for name, side in zip(("a", "b"), values, strict=True))
    options = ("--direction", "min", "--margin", 0.2, "--transform", "log")
    found = read(capsys, before, "--with", after, *options)
    written = np.log([[float(f"{value:g}") for value in side] for side in values])
    assert found["metric"] == "log of value"
    assert found["effect"] == pytest.approx(written[0].mean() - written[1].mean())
    assert found["tasks"][0]["after"] == pytest.approx(written[1].mean())
    page = tmp_path / "page.html"
    told(capsys, before, "--with", after, *options, "--output", page)
    assert "log of value" in page.read_text()
    table(after, [100 * values[1][0], *(0.9 * values[0][1:])])
    said = " ".join(told(capsys, before, "--with", after, *options).split())
    assert "the mean of value itself moves the other way" in said
    main(["compare", str(before), "--with", str(after), "--transform", "log", *map(str, options[:4]), "--markdown"])
    assert "the mean of value itself moves the other way" in capsys.readouterr().out
    for more in (("--pass-at", 2), ("--direction", "target:0.5")):
        assert "cannot be combined with" in refused(capsys, before, "--with", after, *options, *more)
    table(after, [0.0, *values[1][1:]])
    assert "has value 0 for item i0, which has no logarithm" in refused(capsys, before, "--with", after, *options)
    table(after, 1000 * values[1])
    assert "two scales" in told(capsys, before, "--with", after, *options)


def test_items_that_changed_are_those_whose_mean_over_seeds_did(groups, capsys):
    found = read(capsys, groups[0], "--with", groups[1], "--changed-items", 2)
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


def test_one_run_of_each_is_judged_for_these_checkpoints_and_of_the_recipe_if_asked(tmp_path, capsys):
    groups = write_group(tmp_path / "base", seeds=1), write_group(tmp_path / "new", gain=0.25, seeds=1)
    found = read(capsys, groups[0], "--with", groups[1])
    better, worse = int((hits(0, 0.25) > hits(0)).sum()), int((hits(0, 0.25) < hits(0)).sum())
    assert (found["verdict"], found["claim"]) == ("better", "checkpoints")
    assert found["p"] == pytest.approx(binomtest(better, better + worse).pvalue)
    said = "new's checkpoint is better than base's; one run per side cannot show whether the recipe is better"
    assert said in found["reason"]
    required = ["compare", *map(str, (groups[0], "--with", groups[1])), "--margin", "0.01", "--require", "better"]
    assert [main(required), main([*required, "--claim", "recipe"])] == [0, 11]
    capsys.readouterr()
    found = read(capsys, groups[0], "--with", groups[1], "--claim", "recipe")
    alone = contrast([np.array([[hits(0, 0.25)], [hits(0)]])], (1, -1), "max")
    assert found["verdict"] == "undecided"
    assert found["p"] is None
    assert found["item_p"] == pytest.approx(alone.item_p)
    assert (found["low"], found["high"]) == pytest.approx((alone.low, alone.high))
    said = told(capsys, groups[0], "--with", groups[1], "--claim", "recipe")
    assert "not available with one seed per side" in said
    assert "new's checkpoint is better than base's" in " ".join(said.split())


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (("seed=7", "Seed_8"), None),
        (("run-7", "run-8"), None),
        (("7", "8"), r"/(\d+)/"),
        (("x7y1", "x8y1"), r"x(\d+)y"),
    ],
)
def test_the_seed_is_found_in_the_path(names, pattern, tmp_path, capsys):
    for group, gain in (("base", 0), ("new", 0.2)):
        for seed, name in enumerate(names):
            write_samples(tmp_path / group / name / "model", [row(i, v) for i, v in enumerate(hits(seed, gain))])
    more = ["--seed-from", pattern] if pattern else []
    assert read(capsys, tmp_path / "base", "--with", tmp_path / "new", *more)["paired_seeds"] == [7, 8]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("base-seed{}", "long_prompt_run{}"), ("base", "long_prompt")),
        (("prompts{}", "s{}"), ("prompts", "s")),
        (("{}1", "{}2"), ("baseline", "candidate")),
    ],
)
def test_groups_are_named_by_what_their_files_begin_with(files, named, tmp_path, capsys):
    groups = [
        [table(tmp_path / f"{name.format(s)}.csv", hits(s, gain), f",{s}", "item,value,seed") for s in range(3)]
        for name, gain in zip(files, (0, 0.2), strict=True)
    ]
    found = read(capsys, *groups[0], "--with", *groups[1])
    assert (found["parent"], found["child"]) == named


def test_a_seed_without_a_partner_passes_no_requirement_until_it_is_allowed_by_name(tmp_path, capsys):
    """A run that is missing may be the one that collapsed."""
    groups = write_group(tmp_path / "base", seeds=7), "--with", write_group(tmp_path / "new", gain=0.4, seeds=6)
    found = read(capsys, *groups)
    assert (found["verdict"], found["paired_seeds"]) == ("better", list(range(6)))
    assert "new has no seed 6, so the other variant's run is left out too" in found["reason"]
    required = [*map(str, groups), "--margin", "0.01", "--require", "better"]
    assert main(["compare", *required]) == 12
    said = capsys.readouterr().out
    allow = said[said.index("--without") :].split()[:2]
    assert main(["compare", *required, *allow]) == 0
    assert "seed 6 of new is left out, as --without permits" in " ".join(capsys.readouterr().out.split())
    assert "the run does not exist" in refused(capsys, *groups, "--without", "new:7")
    assert "does not name a run" in refused(capsys, *groups, "--without", "7")


def test_runs_that_share_nothing_need_say_so_and_all_count(tmp_path, capsys):
    groups = [
        [table(tmp_path / name / f"{letter}.csv", hits(first + seed, gain)) for seed, letter in enumerate(letters)]
        for name, letters, first, gain in (("base", "hcabgdfe", 0, 0.0), ("new", "hcabg", 50, 0.3))
    ]
    words = [*groups[0], "--with", *groups[1], "--names", "base", "new"]
    assert "--seeds independent" in refused(capsys, *words)
    found = read(capsys, *words, "--seeds", "independent")
    assert (found["design"], found["runs"], found["verdict"]) == ("independent", [5, 8], "better")
    means = (np.mean([hits(seed + 50, 0.3) for seed in range(5)]), np.mean([hits(seed) for seed in range(8)]))
    assert found["effect"] == pytest.approx(means[0] - means[1])


def test_a_run_that_stands_twice_among_others_is_named(tmp_path, capsys):
    for name, runs in (("base", (0, 1, 2, 3)), ("new", (4, 5, 6, 4))):
        for seed, of in enumerate(runs):
            values = np.random.default_rng(of).integers(0, 2, 200).astype(float)
            write_samples(tmp_path / name / f"seed{seed}", [row(i, v) for i, v in enumerate(values)])
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new")
    assert found["verdict"] == "invalid"
    assert "seeds 0 and 3 of new have the same value on every item" in found["reason"]
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new", "--without", "new:3")
    assert (found["verdict"], found["paired_seeds"]) == ("undecided", [0, 1, 2])


def test_the_first_filter_is_taken_unless_another_is_named(tmp_path, capsys):
    def rows(values):
        strict = [row(i, v, name="strict") for i, v in enumerate(values)]
        return strict + [row(i, 1.0, name="loose") for i in range(ITEMS)]

    groups = write_groups(tmp_path, rows, seeds=2)
    found = read(capsys, *groups)
    assert found["effect"] > 0
    assert any("using filter strict; to use another, pass --filter (loose)" in note for note in found["notes"])
    assert read(capsys, *groups, "--filter", "loose")["effect"] == 0
    assert "choose from strict, loose" in refused(capsys, *groups, "--filter", "lose")


def test_items_may_count_equally_and_a_group_of_the_other_sign_is_named(tmp_path, capsys):
    sizes = {"small": 10, "large": 90, "other": 100}
    for group, shares in (("base", (0.2, 0.6, 0.2)), ("new", (0.6, 0.5, 0.6))):
        results = {"results": {}, "groups": {}, "group_subtasks": {"both": ["inner"], "inner": ["small", "large"]}}
        for (task, count), share in zip(sizes.items(), shares, strict=True):
            values = [float(at < round(share * count)) for at in range(count)]
            asked = [row(at, value, question=f"{task} {at}") for at, value in enumerate(values)]
            path = write_samples(tmp_path / group, asked, task=task, results=False)
        whole = (shares[0] * 10 + shares[1] * 90) / 100
        results["groups"]["both"] = {"acc,none": whole}
        path.with_name(path.name.replace("samples_other", "results").replace("jsonl", "json")).write_text(
            json.dumps(results)
        )
    typed = [tmp_path / "base", "--with", tmp_path / "new"]
    found = read(capsys, *typed)
    assert found["effect"] == pytest.approx((0.4 - 0.1 + 0.4) / 3)  # by items +0.175, but not of this group
    [note] = [note for note in found["notes"] if "--weight" in note]
    assert note.startswith(
        "lm-eval, which weights items equally, says that both of new differs from base by -0.0500, "
        "but the mean of the tasks differs by +0.1500"
    )
    found = read(capsys, *typed, *note.rpartition(" pass ")[2].split())
    assert (found["effect"], found["items"]) == (pytest.approx(0.175), 200)
    assert found["worst"][0]["text"]["asked"].startswith("Q: large ")
    assert not any("--weight" in note for note in found["notes"])


def test_names_run_as_no_formula_and_notify_no_one(groups, capsys):
    words = [groups[0], "--with", groups[1], "--names", "=1+1", "@octocat"]
    [record] = csv.DictReader(io.StringIO(told(capsys, *words, "--csv")))
    assert (record["parent"], record["child"], float(record["effect"]) > 0) == ("'=1+1", "'@octocat", True)
    comment = told(capsys, *words, "--markdown")
    assert "octocat" in comment
    assert "@octocat" not in comment


def test_markdown_says_passed_only_of_what_was_required(groups, capsys):
    words = [groups[0], "--with", groups[1], "--markdown"]
    plain, required = told(capsys, *words), told(capsys, *words, "--margin", "0.01", "--require", "not-worse")
    assert "| comparison | verdict | effect |" in plain
    assert "passed" not in plain
    assert "required" not in plain
    assert required.splitlines()[0].endswith(": passed")


def test_rows_of_lm_eval_0_4_3_name_neither_filter_nor_metrics(tmp_path, capsys):
    def rows(values, filters=1):
        named = [row(i, v) for _ in range(filters) for i, v in enumerate(values)]
        return [{key: of[key] for key in of if key not in ("filter", "metrics")} for of in named]

    for group, gain in (("base", 0.0), ("new", 0.25)):
        path = write_samples(tmp_path / group / "seed0", [row(i, v) for i, v in enumerate(hits(0, gain))])
        path.write_text("".join(json.dumps(of) + "\n" for of in rows(hits(0, gain))))
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new")
    assert (found["metric"], found["tasks"][0]["stderr_before"]) == ("acc", 0.02)
    assert found["effect"] == pytest.approx(np.mean(hits(0, 0.25) - hits(0)))
    path.write_text("".join(json.dumps(of) + "\n" for of in rows(hits(0), filters=2)))
    said = refused(capsys, tmp_path / "base", "--with", path)
    assert "doc_id 0 has 2 rows, which do not name their filters" in said


def test_rows_of_an_item_that_was_asked_several_times_are_averaged(tmp_path, capsys):
    for group, second in (("base", 0.0), ("new", 1.0)):
        rows = [row(i, 1.0) for i in range(ITEMS)] + [row(i, second) for i in range(ITEMS)]
        write_samples(tmp_path / group / "seed0", rows)
    found = read(capsys, tmp_path / "base", "--with", tmp_path / "new")
    assert (found["effect"], found["items"]) == (0.5, ITEMS)


def test_documents_that_the_data_hold_twice_are_items_of_one_cluster(tmp_path, capsys):
    groups = write_groups(
        tmp_path, lambda values: [row(i, v, question=f"question {i // 2}") for i, v in enumerate(values)]
    )
    found = read(capsys, *groups)
    alone = contrast([np.array([[hits(0, 0.2)], [hits(0)]])], (1, -1), "max", clusters=[np.arange(ITEMS) // 2])
    assert (found["low"], found["high"]) == pytest.approx((alone.low, alone.high))


def test_items_that_share_a_passage_are_one_cluster_where_it_is_named_and_a_note_where_not(tmp_path, capsys):
    """60 items on 12 passages, which are right or wrong together: as items alone they cover 57 to 84% for 95%."""
    groups = []
    for name, right in (("a", 3), ("b", 6)):
        rows = [row(n, float(n % 12 < right)) for n in range(60)]
        rows = [one | {"doc": one["doc"] | {"passage": f"{n % 12} " + "long " * 30}} for n, one in enumerate(rows)]
        groups.append(write_samples(tmp_path / name, rows))
    said = " ".join(told(capsys, groups[0], "--with", groups[1]).split())
    assert "which has only 12 different texts, so they are correlated and the intervals are too narrow" in said
    assert "; pass --cluster doc.passage" in said
    alone, together = (
        read(capsys, groups[0], "--with", groups[1], *more) for more in ([], ["--cluster", "doc.passage"])
    )
    assert together["high"] - together["low"] > 2 * (alone["high"] - alone["low"])
    assert "they are correlated" not in told(capsys, groups[0], "--with", groups[1], "--cluster", "doc.passage")
    assert "doc.passage" in refused(capsys, groups[0], "--with", groups[1], "--cluster", "doc.text")


def test_smaller_is_better_where_the_results_say_so(tmp_path, capsys):
    groups = write_groups(
        tmp_path, lambda values: [row(i, v) for i, v in enumerate(values)], seeds=3, gain=0.25, larger=False
    )
    assert read(capsys, *groups)["verdict"] == "worse"
    assert read(capsys, *groups, "--direction", "max")["verdict"] == "better"
    assert read(capsys, *groups, "--direction", "target:0.5")["direction"] == {"target": 0.5}


def test_tasks_of_other_metrics_are_compared_one_at_a_time(tmp_path, capsys):
    for group, (task, metric) in itertools.product(("base", "new"), (("toy", "acc"), ("other", "exact_match"))):
        rows = [row(i, v, metric=metric) for i, v in enumerate(hits(group == "new"))]
        write_samples(tmp_path / group / "seed0" / task, rows, task=task)
    groups = tmp_path / "base", "--with", tmp_path / "new"
    said = refused(capsys, *groups)
    assert "toy has acc" in said
    assert "--tasks" in said
    assert read(capsys, *groups, "--tasks", "other")["metric"] == "exact_match"
    assert "was not evaluated on this task" in refused(capsys, *groups, "--tasks", "gone")


def test_other_shapes_of_the_output(groups, capsys, tmp_path):
    rows = list(csv.DictReader(io.StringIO(told(capsys, groups[0], "--with", groups[1], "--csv"))))
    assert [(r["parent"], r["child"], r["verdict"]) for r in rows] == [("base", "new", "better")]
    page = tmp_path / "page.html"
    said = told(capsys, groups[0], "--with", groups[1], "--output", page)
    assert said.startswith("new against base: better")
    html = unfolded(page.read_text())
    assert "new against base" in html
    assert "made elsewhere" in html
    assert "model_args" in html  # the settings that differ are the change
    assert "Items that changed most" in html
    assert "Q: question" in html
    comparison = read(capsys, groups[0], "--with", groups[1])
    assert f"{comparison['effect']:+.2f}" in html


def test_what_a_terminal_or_a_browser_would_obey_is_shown_as_its_code(tmp_path, capsys):
    odd = "a\x1b[2J\u202eb\x9b"
    for name, hit in (("base", 0), ("new", 1)):
        rows = [f"{odd}{i},{hit if i == 3 else i % 2},{i}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("item,hit,n\n" + "\n".join(rows))
    words = (tmp_path / "base.csv", "--with", tmp_path / "new.csv", "--metric", "hit", "--output", tmp_path / "p.html")
    for flags in ((), ("--json",), ("--csv",)):
        said = told(capsys, *words, *flags)
        assert printable(said) == said
        assert flags == ("--csv",) or "\\u202eb" in said
    assert read(capsys, *words)["best"][0]["item"] == f"{odd}3"  # to a program it is what it is
    page = unfolded((tmp_path / "p.html").read_text())
    assert printable(page) == page
    assert "\\u202eb" in page


def samples(file, right):
    """A table in which item i has four samples, of which right[i] are right."""
    rows = [f"q{i},{s},{int(s < count)}" for i, count in enumerate(right) for s in range(4)]
    file.write_text("item,sample,value\n" + "\n".join(rows) + "\n")
    return file


def test_outcomes_of_several_samples(tmp_path, capsys):
    groups = samples(tmp_path / "a.csv", [0, 1, 2, 4] * 5), "--with", samples(tmp_path / "b.csv", [0, 3, 2, 4] * 5)
    assert read(capsys, *groups)["effect"] == pytest.approx(0.125)
    found = read(capsys, *groups, "--pass-at", 3)
    assert found["effect"] == pytest.approx((1 - 0.75) / 4)  # 1 - C(1, 3) / C(4, 3), and 1 - C(3, 3) / C(4, 3)
    assert found["metric"] == "pass@3 of value"
    assert read(capsys, *groups, "--cons-at", 3)["effect"] == pytest.approx((1 - 0) / 4)
    assert "--pass-at = 5: each item has only 4 samples" in refused(capsys, *groups, "--pass-at", 5)
    assert "--pass-at = 0: is not a valid number of samples" in refused(capsys, *groups, "--pass-at", 0)
    assert "cannot be combined with --pass-at" in refused(capsys, *groups, "--pass-at", 2, "--cons-at", 2)
    odd = tmp_path / "c.csv"
    odd.write_text((tmp_path / "a.csv").read_text().replace("q1,0,1", "q1,0,0.5"))
    assert "item q1 has samples whose score is neither 0 nor 1" in refused(capsys, odd, *groups[1:], "--pass-at", 2)
    odd.write_text((tmp_path / "a.csv").read_text() + "q1,0,1\n")
    assert "item q1 occurs 2 times (sample 0); remove the duplicates" in refused(capsys, odd, *groups[1:])


def test_an_item_is_quoted_in_the_seed_that_moved_it_as_the_mean_did(tmp_path, capsys):
    """Towards a target, the mean of a single seed may lie on the other side of it than that of all."""
    head = "item,seed,value,answer\n"
    (tmp_path / "a.csv").write_text(f"{head}a,0,0,-\nb,0,0,-\na,1,0.9,-\nb,1,0.9,-\n")
    words = tmp_path / "a.csv", "--with", tmp_path / "b.csv", "--direction", "target:0.5", "--margin", 0.1
    for a, end, seed in (((0.4, 0.8), "best", 0), ((0.1, 0.4), "worst", 1)):  # +0.4 and -0.1, then +0.1 and -0.5
        (tmp_path / "b.csv").write_text(f"{head}a,0,{a[0]},-\nb,0,0,-\na,1,{a[1]},-\nb,1,0.9,-\n")
        [item] = read(capsys, *words)[end]
        assert (item["item"], item["seed"]) == ("a", seed)


def test_text_json_and_markdown_name_the_same_items(tmp_path, capsys):
    """q3 lost most on average, though it gained in one of the seeds, and others lost in both."""
    rows = [f"q{i},{seed},0.5" for seed in (0, 1) for i in range(6)]
    (tmp_path / "a.csv").write_text("\n".join(["item,seed,value", *rows]))
    losses = {0: (0, 0), 1: (0.01, 0.01), 2: (0.02, 0.03), 3: (-0.01, 0.4), 4: (0.03, 0.02), 5: (-0.1, 0)}
    rows = [f"q{i},{seed},{0.5 - losses[i][seed]}" for seed in (0, 1) for i in range(6)]
    (tmp_path / "b.csv").write_text("\n".join(["item,seed,value", *rows]))
    words = tmp_path / "a.csv", "--with", tmp_path / "b.csv", "--margin", 0.05, "--direction", "max"
    row = read(capsys, *words)
    assert [item["item"] for item in row["worst"]] == ["q3", "q2", "q4"]  # q2 and q4 are equal: by name
    assert [item["item"] for item in row["best"]] == ["q5"]
    assert re.findall(r"worst (q\d)", told(capsys, *words)) == ["q3", "q2", "q4"]
    assert re.findall(r"  - (q\d)", told(capsys, *words, "--markdown")) == ["q3", "q5", "q2"]


def by_documents(folder, capsys):
    """Three tasks: two small ones that gain, and a large one that loses; by documents the loss is larger."""
    for side in ("base", "new"):
        for task, items, right in (("a", 10, (2, 6)), ("b", 10, (3, 6)), ("c", 180, (100, 88))):
            values = [float(k < right[side == "new"]) for k in range(items)]
            rows = [row(k, value, question=f"{task} {k}") for k, value in enumerate(values)]
            write_samples(folder / side / "seed0", rows, task=task)
    return folder / "base", "--with", folder / "new", "--margin", 0.01


def test_a_weighting_that_turns_the_sign_is_named(tmp_path, capsys):
    """As of MMLU: by tasks a gain of .2111, by documents, as lm-eval prints it, a loss of .0250."""
    words = by_documents(tmp_path, capsys)
    assert read(capsys, *words)["effect"] == pytest.approx((0.4 + 0.3 - 12 / 180) / 3)
    line = "with items counted equally, new against base is undecided (-0.025); to see it, pass --weight items"
    assert line in " ".join(told(capsys, *words).split())
    assert line in told(capsys, *words, "--markdown").replace("\\", "")
    assert json.loads(told(capsys, *words, "--json"))["notes"][0] == line
    assert read(capsys, *words, "--weight", "items")["effect"] == pytest.approx(-5 / 200)
    for chosen in ("tasks", "items"):
        assert "counted equally" not in told(capsys, *words, "--weight", chosen)


@pytest.mark.parametrize(("kind", "taken", "other"), [("filter", "strict", "flexible"), ("metric", "acc", "acc_norm")])
def test_a_filter_or_metric_that_turns_the_verdict_is_named(tmp_path, capsys, kind, taken, other):
    for side, right, otherwise in (("base", 60, 50), ("new", 20, 58)):
        if kind == "filter":
            counts = ((taken, right), (other, otherwise))
            rows = [row(k, float(k < count), name=name) for name, count in counts for k in range(80)]
        else:
            rows = [row(k, float(k < right), metrics=[taken, other], acc_norm=float(k < otherwise)) for k in range(80)]
        write_samples(tmp_path / side / "seed0", rows)
    words = tmp_path / "base", "--with", tmp_path / "new", "--margin", 0.01
    found = " ".join(told(capsys, *words).split())
    assert "base: worse" in found
    assert f"by {kind} {other}, new against base is better (+0.100); to see it, pass --{kind} {other}" in found
    assert f"by {kind}" not in told(capsys, *words, f"--{kind}", taken)


def test_another_choice_that_says_the_same_is_not_named(tmp_path, capsys):
    for side, right in (("base", (20, 21)), ("new", (60, 62))):
        rows = [row(k, float(k < n), name=name) for name, n in zip("xy", right, strict=True) for k in range(80)]
        for task in ("a", "b"):
            write_samples(tmp_path / side / "seed0", rows, task=task)
    found = told(capsys, tmp_path / "base", "--with", tmp_path / "new", "--margin", 0.01)
    assert "to use another, pass --filter (y)" in found
    assert "by filter" not in found
    assert "counted equally" not in found
