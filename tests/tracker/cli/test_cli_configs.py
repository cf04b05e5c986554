import argparse

import pytest
import yaml

from contract.errors import ConfigError
from tests.tracker.toy_study import VARIANTS, Toy
from tracker.cli import configs as cli_configs
from tracker.plan import build as plan


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_configs, "build_plan", lambda settings: plan.build_plan(settings, root=tmp_path))
    return Toy(tmp_path)


@pytest.fixture
def run(toy, capsys):
    def call(*argv):
        parser = argparse.ArgumentParser()
        cli_configs.register(parser.add_subparsers(required=True))
        arguments = parser.parse_args(argv)
        assert not arguments.run(arguments)
        return capsys.readouterr().out

    return call


def test_validate_counts(run, toy):
    assert run("validate") == "toy: 4 variants, 8 runs, 17 stages and 1 asset at scale full\n"
    assert "4 variants, 12 runs" in run("validate", "--config", "seeds=3")
    toy.yaml("scales/small.yaml", {"seeds": 1})
    assert "4 variants, 4 runs, 9 stages and 1 asset at scale small" in run("validate", "--scale", "small")


def test_validate_writes_schemas(run, toy):
    out = run("validate", "--write-schema")
    assert "toy.variant.json" in out
    assert (toy.configs / "schema/toy.variant.json").is_file()


def test_validate_finds_errors_of_any_variant(run, toy):
    toy.variant("bad", {"extends": "v10", "why": "x", "bold": True})
    with pytest.raises(ConfigError, match="b is never bold"):
        run("validate")


def test_variants_is_a_tree(run):
    assert run("variants", "toy").splitlines() == [
        "toy: Toy",
        "base",
        "    why: the start",
        "  v2",
        "      reward.weight: 0.0 -> 0.5",
        "      why: more",
        "    v3",
        "        reward.levels: [0.1, 0.2] -> [0.3]",
        "        why: levels",
        "    v10  [confounded: 2 factors]",
        "        lr: 0.001 -> 0.01",
        "        reward.kind: a -> b",
        "        why: other",
    ]


def test_show_is_yaml_and_marks_what_differs(run, toy):
    text = run("show", "toy/v10")
    shown = yaml.safe_load(text)
    assert shown["reward"] == {"kind": "b", "weight": 0.5, "levels": [0.1, 0.2]}
    assert shown["lr"] == 0.01
    marked = {line.split(":")[0].strip() for line in text.splitlines() if "# differs: default" in line}
    assert marked == {"lr", "kind", "weight"}
    toy.yaml("scales/small.yaml", {"seeds": 1, "studies": {"toy": {"multiply": {"lr": 10}}}})
    assert yaml.safe_load(run("show", "v10", "--scale", "small"))["lr"] == 0.1
    assert yaml.safe_load(run("show", "v10", "--config", "scale=small"))["lr"] == 0.01


@pytest.mark.parametrize(
    "argv", [("toy/v2", "toy/v10"), ("v2", "v10"), ("v2", "v10", "--study", "toy"), ("v2", "toy/v10")]
)
def test_diff_prints_exactly_the_change(run, argv):
    assert run("diff", *argv) == "lr: 0.001 -> 0.01\nreward.kind: a -> b\nwhy v10: other\n"


def test_diff_both_ways_and_none(run):
    assert run("diff", "v10", "v2") == "lr: 0.01 -> 0.001\nreward.kind: b -> a\nwhy v2: more\n"
    assert run("diff", "v2", "v2").startswith("no difference\n")


def test_errors_suggest(run, toy):
    with pytest.raises(ConfigError, match="did you mean 'v10'"):
        run("show", "v100")
    with pytest.raises(ConfigError, match="did you mean 'toy'"):
        run("variants", "toi")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        run("validate", "--config", "seeds")
    toy.yaml("studies/two/_study.yaml", yaml.safe_load((toy.folder / "_study.yaml").read_text()) | {"published": None})
    toy.yaml("studies/two/base.yaml", {**VARIANTS["base"]})
    with pytest.raises(ConfigError, match="names no study"):
        run("show", "base", "--config", "studies=toy,two")
    with pytest.raises(ConfigError, match="another study"):
        run("diff", "toy/base", "two/base")
    assert run("variants", "two").startswith("two: Toy\nbase")
