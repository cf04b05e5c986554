"""The setting `wandb`: refused before any job where it cannot work, and no part of a plan or a key."""

import importlib.util
import json

import pytest

from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan


@pytest.fixture
def installed(monkeypatch):
    """Whether wandb is installed, as far as the settings can tell."""
    original = importlib.util.find_spec

    def pretend(present):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: (object() if present else None) if name == "wandb" else original(name),
        )

    return pretend


@pytest.mark.parametrize("value", [None, "", False])
def test_it_is_off_unless_asked_for(installed, value):
    installed(False)
    assert load_settings({"wandb": value}).wandb is None


def test_what_is_not_installed_is_refused_in_one_line_with_a_remedy(installed):
    installed(False)
    with pytest.raises(ConfigError, match="wandb is not installed") as caught:
        load_settings({"wandb": "offline"})
    assert "pip install wandb" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_word_is_refused(installed):
    installed(True)
    with pytest.raises(ConfigError, match="offline or online"):
        load_settings({"wandb": "sometimes"})


def test_it_changes_no_key(installed):
    installed(True)
    plans = [build_plan(load_settings({"scale": "smoke", "wandb": value})).text for value in (None, "offline")]
    assert json.dumps(plans[0]) == json.dumps(plans[1])
