import pytest
import yaml

from contract.errors import ConfigError
from tests.tracker.toy_study import VARIANTS, Toy
from tracker.cli.main import run_command
from tracker.cli.parser import build_parser
from tracker.plan import build as plan


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = plan.build_plan
    monkeypatch.setattr(plan, "build_plan", lambda settings: whole(settings, root=tmp_path))
    return Toy(tmp_path)


@pytest.fixture
def run(toy, capsys):
    def call(*argv):
        assert run_command(build_parser().parse_args(argv)) == 0
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


@pytest.fixture
def two_studies(toy):
    """`two` has base, and v2 under another meaning; `own` stands in `two` only."""
    toy.yaml("studies/two/_study.yaml", yaml.safe_load((toy.folder / "_study.yaml").read_text()) | {"published": None})
    toy.yaml("studies/two/base.yaml", VARIANTS["base"])
    toy.yaml("studies/two/own.yaml", {"extends": "base", "why": "alone", "lr": 0.5})


def test_a_variant_needs_no_study_where_one_study_has_it(run, two_studies):
    both = ("--config", "studies=toy,two")
    assert run("diff", "v2", "v10", *both).endswith("why v10: other\n")
    assert run("diff", "base", "own", *both) == "lr: 0.001 -> 0.5\nwhy own: alone\n"  # base stands in both, own in one
    assert run("show", "own", *both).startswith("# two/own")
    assert run("show", "own").startswith("# two/own")  # a study that the settings do not list


def test_a_variant_of_several_studies_needs_one(run, two_studies):
    both = ("--config", "studies=toy,two")
    with pytest.raises(ConfigError, match="base: is in 2 studies; name the study: toy/base, two/base"):
        run("show", "base", *both)
    with pytest.raises(ConfigError, match="v2 and own: no study has both"):
        run("diff", "v2", "own", *both)
    with pytest.raises(ConfigError, match="owm: no study has such a variant; did you mean 'own'"):
        run("diff", "base", "owm", *both)
    with pytest.raises(ConfigError, match="toy and two: are two studies"):
        run("diff", "toy/base", "two/base")
    with pytest.raises(ConfigError, match="two and toy: are two studies"):
        run("diff", "toy/base", "base", "--study", "two")
    assert run("show", "base").startswith("# toy/base")  # the only one that the settings list


def test_errors_suggest(run, two_studies):
    with pytest.raises(ConfigError, match="did you mean 'v10'"):
        run("show", "v100")
    with pytest.raises(ConfigError, match="did you mean 'toy'"):
        run("variants", "toyy")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        run("validate", "--config", "seeds")
    assert run("variants", "two").startswith("two: Toy\nbase")
