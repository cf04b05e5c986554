"""`ablation compare --study`: many variants in one file."""

import json

import numpy as np
import pandas as pd
import pytest

from ablation.cli.main import main
from tests.ablation.readers.command import refused, told
from tests.ablation.readers.samples import hits, write_group

TWO = "variants: {a: {runs: [base]}, b: {parent: a, runs: [new]}}"


@pytest.mark.parametrize(
    ("comparisons", "pairs"),
    [
        ("parent", [("base", "new"), ("new", "third")]),
        ("root", [("base", "new"), ("base", "third")]),
        ("[[third, base], [new, third]]", [("base", "third"), ("third", "new")]),
    ],
)
def test_a_study_of_three_variants(comparisons, pairs, groups, tmp_path, capsys):
    write_group(tmp_path / "third", gain=0.26)
    (tmp_path / "my.yaml").write_text(
        f"title: Toy\nanalysis: {{metric: acc, margin: 0.02, comparisons: {comparisons}}}\nvariants:\n"
        "  third: {parent: new, why: more, runs: [third]}\n"
        "  base: {runs: ['base/*/samples_*.jsonl']}\n  new: {parent: base, why: a gain, runs: [new]}\n"
    )
    words = "--study", tmp_path / "my.yaml", "--output", tmp_path / "p.html"
    rows = json.loads(told(capsys, *words, "--json"))["rows"]
    assert sorted((row["parent"], row["child"]) for row in rows) == sorted(pairs)
    gains = {"base": 0, "new": 0.25, "third": 0.26}
    means = {name: np.mean([hits(seed, gain) for seed in range(3)]) for name, gain in gains.items()}
    for row in rows:
        assert row["effect"] == pytest.approx(means[row["child"]] - means[row["parent"]])
        assert row["root"] == ("base" if comparisons == "parent" else "")
        assert row["p_adjusted"] >= row["p"]
    assert told(capsys, *words).count(" against ") >= 2


def test_the_order_of_variants_decides_nothing(groups, tmp_path, capsys):
    """Corrected p draw from the family of comparisons."""
    for name, gain in (("v2", 0.05), ("v3", 0.1), ("v10", 0.02)):
        write_group(tmp_path / name, gain=gain)
    lines = [f"  {name}: {{parent: base, why: x, runs: [{name}]}}" for name in ("v2", "new", "v10", "v3")]
    lines.append("  base: {runs: [base]}")
    found = []
    for order in (lines, lines[::-1]):
        (tmp_path / "my.yaml").write_text("\n".join(["analysis: {metric: acc, margin: 0.02}", "variants:", *order]))
        rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json"))["rows"]
        assert "max-t" in rows[0]["reason"]
        found.append({row["child"]: row for row in rows})
    first, second = (pd.DataFrame.from_dict(rows, orient="index").sort_index() for rows in found)
    pd.testing.assert_frame_equal(first, second, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variants: {a: {runs: [base]}, b: {parent: c, runs: [new]}}", "the variant does not exist"),
        ("variants: {a: {parent: b, runs: [base]}, b: {parent: a, runs: [new]}}", "form a cycle: a, b"),
        ("variants: {a: {runs: [base]}, b: {runs: [new]}}", "there is nothing to compare"),
        ("analysis: {comparisons: root}\nvariants: {a: {runs: [base]}, b: {runs: [new]}}", "nothing to compare"),
        ("variants: {a: {runs: [base]}, b: {parent: a, runs: [new], file: 1}}", "b.file"),
        ("variants: {a: {runs: [base]}, b: {parent: a}}", "variants.b.runs: is missing"),
        (
            "variants: {a: {runs: [base]}, b: {parent: a, where: {lr: 1}, runs: [new]}}",
            "where: works only with `ablation import`",
        ),
        (f"runs: {{ignore: [lr]}}\n{TWO}", "runs.ignore: works only with `ablation import`"),
        (f"runs: {{seed: lr}}\n{TWO}", "write name:REGEX"),
        (f"analysis: {{metric: [acc, f1]}}\n{TWO}", "is not a single metric"),
        ("variants: {a: {runs: [base]}}", "variants"),
        (f"analysis: {{comparisons: []}}\n{TWO}", "must be one or more pairs of different variants"),
        (f"analysis: {{margin: 0}}\n{TWO}", "my.yaml: analysis.margin = 0"),
        (f"analysis: {{protocol: x}}\n{TWO}", "does not name values of evaluation files"),
        (f"analysis: {{margins: 1}}\n{TWO}", "did you mean 'margin'?"),
        ("variants: {a: {runs: [base]}, b: {parent: a, runs: [gone]}}", "no file has this name"),
    ],
)
def test_a_study_that_is_wrong(text, words, groups, tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(text)
    assert words in refused(capsys, "--study", tmp_path / "my.yaml")


def test_a_file_that_import_reads_as_well(groups, tmp_path, capsys, monkeypatch):
    """One dialect: values, direction and margin, seeds by names, and variants by patterns of their runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(
        "name: mine\nruns: {seed: 'name:seed(\\d+)'}\n"
        "analysis: {protocol: evaluation, value: acc, subsets: [toy], direction: max, margin: 0.02}\n"
        "evaluations: {weight: items, allow: [prompt]}\n"
        "variants: {base: {runs: ['base/*']}, new: {parent: base, why: more, runs: ['new/*']}}\n"
    )
    [compared] = json.loads(told(capsys, "--study", "study.yaml", "--json"))["rows"]
    assert main(["import", "evaluation", ".", "--study", "study.yaml"]) == 0
    capsys.readouterr()
    assert main(["verdicts", "--json"]) == 0
    [imported] = json.loads(capsys.readouterr().out)["rows"]
    names = ("parent", "child", "seeds", "verdict")
    assert [compared[name] for name in names] == [imported[name] for name in names] == ["base", "new", 3, "better"]
    assert compared["effect"] == pytest.approx(imported["effect"])


@pytest.mark.parametrize("words", [("--metric", "acc"), ("--names", "a", "b")])
def test_what_a_file_says_is_not_said_beside_it(words, groups, tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(TWO)
    assert f"cannot be combined with {words[0]};" in refused(capsys, "--study", tmp_path / "my.yaml", *words)
