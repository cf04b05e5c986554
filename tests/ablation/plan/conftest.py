import pytest

from tests.ablation.plan.commands import make_commands
from tests.ablation.toy_study import Toy


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy study, in the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return Toy(tmp_path)


@pytest.fixture
def commands(toy):
    return make_commands(toy)
