"""Loading the toy study, and the one line by which it is refused."""

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError


def load(toy, **overrides):
    return load_studies(load_settings(overrides, configs=toy.configs))["toy"]


def refused(toy, *parts, **overrides):
    with pytest.raises(ConfigError) as caught:
        load(toy, **overrides)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert "\n" not in text
    return caught.value
