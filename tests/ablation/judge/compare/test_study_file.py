"""`ablation compare --study`: many variants in one file."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.ablation.readers.command import refused, told
from tests.ablation.readers.samples import hits, write_group

TWO = "variants: {a: {files: [base]}, b: {extends: a, files: [new]}}"


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
        f"title: Toy\nmetric: acc\nanalysis: {{margin: 0.02, comparisons: {comparisons}}}\nvariants:\n"
        "  third: {extends: new, why: more, files: [third]}\n"
        "  base: {files: ['base/*/samples_*.jsonl']}\n  new: {extends: base, why: a gain, files: [new]}\n"
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
    lines = [f"  {name}: {{extends: base, why: x, files: [{name}]}}" for name in ("v2", "new", "v10", "v3")]
    lines.append("  base: {files: [base]}")
    found = []
    for order in (lines, lines[::-1]):
        (tmp_path / "my.yaml").write_text("\n".join(["metric: acc", "analysis: {margin: 0.02}", "variants:", *order]))
        rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json"))["rows"]
        assert "max-t" in rows[0]["reason"]
        found.append({row["child"]: row for row in rows})
    first, second = (pd.DataFrame.from_dict(rows, orient="index").sort_index() for rows in found)
    pd.testing.assert_frame_equal(first, second, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variants: {a: {files: [base]}, b: {extends: c, files: [new]}}", "there is no such variant"),
        ("variants: {a: {extends: b, files: [base]}, b: {extends: a, files: [new]}}", "circle"),
        ("variants: {a: {files: [base]}, b: {files: [new]}}", "nothing is compared"),
        ("analysis: {comparisons: root}\nvariants: {a: {files: [base]}, b: {files: [new]}}", "nothing is compared"),
        ("variants: {a: {files: [base]}, b: {extends: a, files: [new], file: 1}}", "b.file"),
        ("variants: {a: {files: [base]}}", "variants"),
        (f"analysis: {{comparisons: []}}\n{TWO}", "must be different pairs"),
        (f"analysis: {{margin: 0}}\n{TWO}", "my.yaml: analysis.margin = 0"),
        (f"analysis: {{protocol: x}}\n{TWO}", "my.yaml: analysis.protocol: is not known here"),
        (f"analysis: {{margins: 1}}\n{TWO}", "did you mean 'margin'?"),
        ("variants: {a: {files: [base]}, b: {extends: a, files: [gone]}}", "no such file"),
    ],
)
def test_a_study_that_is_wrong(text, words, groups, tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(text)
    assert words in refused(capsys, "--study", tmp_path / "my.yaml")


@pytest.mark.parametrize("words", [("--metric", "acc"), ("--names", "a", "b")])
def test_what_a_file_says_is_not_said_beside_it(words, groups, tmp_path, capsys):
    (tmp_path / "my.yaml").write_text(TWO)
    assert f"cannot be combined with {words[0]};" in refused(capsys, "--study", tmp_path / "my.yaml", *words)
