import re

import pytest
import yaml

from ablation.cli.parser import build_parser
from ablation.contract.errors import ConfigError
from ablation.judge.comparisons import judge_pair
from ablation.judge.stored import read_measurements
from ablation.plan import build as plan
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.toy_study import VARIANTS, Toy
from tests.simulate import Study, simulate


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = plan.build_plan
    monkeypatch.setattr(plan, "build_plan", lambda settings: whole(settings, root=tmp_path))
    return Toy(tmp_path)


@pytest.fixture
def run(toy, capsys):
    def call(*argv):
        arguments = build_parser().parse_args(argv)
        assert not arguments.run(arguments)
        return capsys.readouterr().out

    return call


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


@pytest.fixture
def two_studies(toy):
    """`two` has base, and v2 under another meaning; `own` stands in `two` only."""
    toy.yaml("studies/two/_study.yaml", yaml.safe_load((toy.folder / "_study.yaml").read_text()) | {"published": None})
    toy.yaml("studies/two/base.yaml", VARIANTS["base"])
    toy.yaml("studies/two/own.yaml", {"extends": "base", "why": "alone", "lr": 0.5})


def test_a_variant_of_several_studies_needs_one(run, two_studies):
    both = ("--config", "studies=toy,two")
    with pytest.raises(ConfigError, match="base: is in 2 studies; name the study: toy/base, two/base"):
        run("show", "base", *both)
    with pytest.raises(ConfigError, match="v2 and own: no study has both"):
        run("diff", "v2", "own", *both)
    with pytest.raises(ConfigError, match="owm: no study has a variant with this name; did you mean 'own'"):
        run("diff", "base", "owm", *both)
    with pytest.raises(ConfigError, match="toy and two: are different studies; name variants of one study"):
        run("diff", "toy/base", "two/base")
    with pytest.raises(ConfigError, match="two and toy: are different studies"):
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


def simulated(folder, **study):
    """Results of the toy study's variants, collected."""
    variant_tree = {
        "base": (None, {}),
        "v2": ("base", {"reward.weight": (0.0, 0.5)}),
        "v10": ("v2", {"lr": (1e-3, 1e-2)}),
    }
    study = {"variant_tree": variant_tree, "seeds": 3, "distances": {"v10": 0.4}} | study
    simulate(folder, [Study("toy", **study)])
    collect(folder)


def test_diff_says_what_the_change_did_where_there_are_results(run, toy, tmp_path):
    simulated(tmp_path / "results")
    out = run("diff", "base", "v10")  # the results of the settings
    assert out.startswith("lr: 0.001 -> 0.01\n")
    assert "results at scale simulated: the distance of hit from 0.5 (protocol: edited)" in out
    line = next(line for line in out.splitlines() if line.startswith("v10 against base, 3 seeds, 100 items: "))
    effect, low, high, p, verdict = re.fullmatch(
        r".*: ([-+.\d]+), 95% interval \[([-+.\d]+), ([-+.\d]+)\], p = ([-.\de]+): (\w+)", line
    ).groups()
    with Store(tmp_path / "results/tracker.duckdb") as store:
        study = read_measurements(store, "toy")
        means = store.results("toy").query("metric == 'edited/mean/distance'").groupby("variant")["value"].mean()
    comparison = judge_pair(study, "v10", "base").comparison
    assert float(effect) == pytest.approx(means["base"] - means["v10"], abs=0.005)  # smaller is better
    assert [float(low), float(high), float(p)] == pytest.approx(
        [comparison.low, comparison.high, comparison.p], rel=0.06
    )
    assert verdict == comparison.detail == "worse"
    assert "not corrected for other comparisons" in out
    assert "confounded: 2 factors differ" in out
    assert "as one of the study's" not in out  # base and v10 are not a comparison
    assert "as one of the study's 2 comparisons, corrected for all of them: v10 after v2 is worse" in run(
        "diff", "v10", "v2"
    )


def test_diff_without_results_of_a_variant_says_so(run, toy, tmp_path):
    simulated(tmp_path / "results")
    assert run("diff", "base", "v3").splitlines()[-1] == f"{tmp_path / 'results'} has no results for v3"
    other = tmp_path / "other of 'mine'"
    simulated(other, states={("v2", seed): "failed" for seed in range(3)})
    assert "v2 against base: invalid\n    v2 seed 0 failed" in run("diff", "base", "v2", "--results", str(other))
    assert "results at" not in run("diff", "v2", "v2")
    with pytest.raises(ConfigError, match="contains neither a plan nor a database nor imported runs"):
        run("diff", "base", "v2", "--results", str(tmp_path / "nowhere"))


def test_diff_finds_variants_that_only_the_results_know(run, toy, tmp_path):
    variant_tree = {"base": (None, {}), "mine": ("base", {"lr": (1, 2)})}
    simulate(tmp_path / "results", [Study("imported", variant_tree=variant_tree, seeds=3)])
    collect(tmp_path / "results")
    lines = run("diff", "base", "mine").splitlines()
    assert lines[0] == "lr: 1 -> 2"
    assert lines[2].startswith("mine against base, 3 seeds, 100 items: ")
    assert "    as the study's only comparison: mine after base is" in lines[-1]
    assert run("diff", "imported/base", "imported/mine").splitlines() == lines
    with pytest.raises(ConfigError, match="the variant does not exist"):
        run("diff", "base", "yours")
    for words in (["diff", "base", "mine"], ["variants", "imported"], ["show", "imported/mine"]):
        with pytest.raises(ConfigError, match="--scale: works only for the configurations of a project"):
            run(*words, "--scale", "full")
    toy.variant("v2", {"extends": "base", "why": "x", "nonsense": 1})
    with pytest.raises(ConfigError, match="nonsense"):  # a mistake in a configuration is not passed over
        run("diff", "base", "v2")
