"""`ablation compare --study`: many variants in one file."""

import json

import pytest

from tests.ablation.readers.command import refused, told
from tests.ablation.readers.samples import hits, write_group

TWO = "variants: {a: {files: [base]}, b: {extends: a, files: [new]}}"


def test_a_study_of_three_variants(groups, tmp_path, capsys):
    write_group(tmp_path / "third", gain=0.26)
    (tmp_path / "my.yaml").write_text(
        "title: Toy\nmetric: acc\nanalysis: {margin: 0.02}\nvariants:\n"
        "  third: {extends: new, why: more, files: [third]}\n"
        "  base: {files: ['base/*/samples_*.jsonl']}\n  new: {extends: base, why: a gain, files: [new]}\n"
    )
    rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json"))["rows"]
    assert [(r["parent"], r["child"]) for r in rows] == [("base", "new"), ("new", "third")]
    assert rows[1]["root"] == "base"
    assert rows[0]["p_adjusted"] >= rows[0]["p"]
    assert told(capsys, "--study", tmp_path / "my.yaml", "--output", tmp_path / "p.html").count(" against ") >= 2


@pytest.mark.parametrize(
    ("comparisons", "pairs"),
    [
        ("root", {("base", "new"), ("base", "third")}),
        ("[[third, base], [new, third]]", {("base", "third"), ("third", "new")}),
    ],
)
def test_a_study_of_other_comparisons(comparisons, pairs, groups, tmp_path, capsys):
    write_group(tmp_path / "third", gain=0.26)
    (tmp_path / "my.yaml").write_text(
        f"analysis: {{comparisons: {comparisons}}}\nvariants:\n  base: {{files: [base]}}\n"
        "  new: {extends: base, files: [new]}\n  third: {extends: new, files: [third]}\n"
    )
    rows = json.loads(told(capsys, "--study", tmp_path / "my.yaml", "--json", "--output", tmp_path / "p.html"))["rows"]
    assert {(r["parent"], r["child"]) for r in rows} == pairs
    means = {
        name: sum(hits(seed, gain).mean() for seed in range(3)) / 3
        for name, gain in (("base", 0), ("new", 0.25), ("third", 0.26))
    }
    for found in rows:
        assert found["effect"] == pytest.approx(means[found["child"]] - means[found["parent"]])


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
