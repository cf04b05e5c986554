"""What the settings come to; a value that cannot work is refused before any job, in one line that says what to do."""

import importlib.util

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from tests.ablation.toy_study import Toy


@pytest.fixture
def toy(tmp_path):
    return Toy(tmp_path / "project")


def refusal(toy, **overrides):
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides, configs=toy.configs)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 500
    return text


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("/dev/null", "is not a folder"),
        ("-rf", "looks like a command-line option"),
        ("~nobody-of-this-name/x", "the home folder does not exist"),
        ("/", "contains the project"),
        ("{root}", "is the project's folder"),
        ("{root}/..", "contains the project"),
        ("{root}/configs", "is in a folder of the project's own files (configs)"),
        ("{root}/trainers/toy/x", "is in a folder of the project's own files (trainers)"),
        ("{root}/file", "is not a folder"),
        ("{root}/dangling", "is a link to nowhere, which does not exist"),
        ("x" * 300, "cannot be read (File name too long)"),
        *((name, "is not a usable folder") for name in ("a\0b", "a\nb", "a\x1b[2Jb", "{key}", "a}", "*", " ")),
    ],
)
def test_what_is_no_folder_is_refused(toy, folder, problem):
    (toy.root / "file").write_text("mine")
    (toy.root / "dangling").symlink_to("nowhere")
    text = refusal(toy, results=folder.replace("{root}", str(toy.root)))
    assert text.startswith("--config: results = ")
    assert problem in text
    remedies = ("name a new folder, or one that holds earlier results", "do not begin", "full path", "without braces")
    assert any(remedy in text for remedy in remedies)


def test_results_and_reports_are_two_folders(toy, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    for reports in ("one", "one/../one", "two"):
        text = refusal(toy, results=str(tmp_path / "one"), reports=str(tmp_path / reports))
        assert "is also the results folder" in text
    for reports in ("one/stages", "two/imported/lr"):
        text = refusal(toy, results=str(tmp_path / "one"), reports=str(tmp_path / reports))
        assert "is inside the results folder" in text
    load_settings({"results": str(tmp_path / "one"), "reports": str(tmp_path / "one/reports")}, configs=toy.configs)
    (tmp_path / "link").symlink_to("one")  # the folders themselves may be links, to a larger disk say
    load_settings({"results": str(tmp_path / "link"), "reports": str(tmp_path / "x")}, configs=toy.configs)


@pytest.mark.parametrize("name", ["x.YAML", "x.yml", "x.Yml", "_STUDY.yaml"])
def test_a_file_that_looks_like_a_variant_and_is_none_is_told(toy, name):
    (toy.folder / name).write_text("extends: base\nwhy: nobody reads this\n")
    with pytest.raises(ConfigError) as caught:
        load_studies(load_settings({}, configs=toy.configs))
    assert name in str(caught.value)
    assert "rename it to _study.yaml" in str(caught.value) or "rename it to .yaml" in str(caught.value)


def settings(toy, **overrides):
    return load_settings(overrides, configs=toy.configs)


@pytest.mark.parametrize(
    ("value", "seeds"),
    [
        *(("3", (0, 1, 2)), (3, (0, 1, 2)), ("4,7", (4, 7)), ("5,", (5,)), ([1, 9], (1, 9)), (["1", "9"], (1, 9))),
        *((None, (0, 1)), ("", (0, 1))),
    ],
)
def test_seeds(toy, value, seeds):
    assert settings(toy, seeds=value).seeds == seeds


def test_without_a_list_every_folder_is_a_study(toy):
    toy.yaml("config.yaml", {"scale": "full", "studies": None})
    assert settings(toy).studies == {"toy": ()}
    toy.yaml("studies/another/_study.yaml", {})
    assert settings(toy).studies == {"another": (), "toy": ()}
    assert settings(toy, studies="toy").studies == {"toy": ()}


def test_a_part_of_a_plan(toy):
    """As text by `--config`, where null is a word; a variant brings its parents, and nothing else is in the plan."""
    toy.yaml("studies/another/_study.yaml", {})
    found = settings(toy, studies={"toy": ["v10"], "another": "null"})
    assert found.studies == {"toy": ("v10",), "another": ()}
    [study] = load_studies(settings(toy, studies={"toy": ["v10"]})).values()
    assert list(study.variants) == ["base", "v2", "v10"]


def test_a_study_may_have_seeds_of_its_own_unless_the_settings_name_some(toy):
    toy.yaml("studies/another/_study.yaml", {})
    toy.yaml("scales/small.yaml", {"seeds": 2, "studies": {"toy": {"seeds": 4}, "another": {"seeds": [7]}}})
    found = settings(toy, scale="small", studies="toy,another")
    assert (found.seeds_of("toy"), found.seeds_of("another"), found.seeds) == ((0, 1, 2, 3), (7,), (0, 1))
    named = settings(toy, scale="small", studies="toy,another", seeds=3)
    assert named.seeds_of("toy") == named.seeds_of("another") == (0, 1, 2)
    assert settings(toy, scale="small", study="toy", seed=3).seed == 3
    with pytest.raises(ConfigError, match=r"choose from 0, 1, 2, 3$"):
        settings(toy, scale="small", study="toy", seed=7)


@pytest.mark.parametrize(
    ("seeds", "text"), [(0, "valid number"), ([], "at least 1"), ([1, 1], "twice"), ("x", "whole number")]
)
def test_a_bad_number_of_seeds_of_a_study_is_told_with_its_key(toy, seeds, text):
    toy.yaml("scales/small.yaml", {"seeds": 2, "studies": {"toy": {"seeds": seeds}}})
    with pytest.raises(ConfigError, match=text) as caught:
        settings(toy, scale="small")
    assert "small.yaml" in str(caught.value)
    assert "studies.toy.seeds" in str(caught.value)


NO_NUMBERS = (10**20, "9" * 20, "9" * 5000, "1_0", "+1")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"sclae": "full"}, "did you mean 'scale'"),
        ({"scale": "ful"}, "did you mean 'full'"),
        ({"studies": "toi"}, "did you mean 'toy'"),
        ({"studies": "toy,toy"}, "twice"),
        ({"studies": {"toy": ["v11"]}}, "did you mean 'v10'"),
        ({"studies": [3]}, "valid string"),
        ({"seeds": "x"}, "whole number"),
        ({"seed": 9}, "not a seed of the plan"),
        ({"retry": "all"}, "'failed'"),
        ({"study": None, "foo": None}, "is not a key"),
        ({"gpus": "many"}, "valid integer"),
        *(({"cost_per_device_hour": value}, "should be a valid number") for value in ("nan", "-1.0")),
        *(({key: value}, f"--config: {key}") for key in ("seed", "seeds", "gpus") for value in NO_NUMBERS),
        *(({"seeds": value}, "--config: seeds") for value in ([0, 2**32], "0,4294967296", [0, -1], 10_001)),
    ],
)
def test_settings_refuse(toy, overrides, said):
    text = refusal(toy, **overrides)
    assert said in text
    assert text.startswith("--config: ")


# wandb: refused before any job where it cannot work, and no part of a plan or a key


@pytest.fixture
def installed(monkeypatch):
    """Whether wandb is installed, as far as the settings can tell."""
    original = importlib.util.find_spec

    def pretend(present):
        wandb = object() if present else None
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: wandb if name == "wandb" else original(name))

    return pretend


@pytest.mark.parametrize("value", [None, "", False])
def test_wandb_is_off_unless_asked_for(installed, value):
    installed(False)
    assert load_settings({"wandb": value}).wandb is None


def test_wandb_that_is_not_installed_or_another_word_is_refused_in_one_line(toy, installed):
    installed(False)
    assert "wandb is not installed; run `pip install wandb`" in refusal(toy, wandb="offline")
    installed(True)
    assert "offline, online" in refusal(toy, wandb="sometimes")
