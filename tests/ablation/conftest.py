"""What many tests of the tracker begin with."""

import pytest

from tests.ablation.readers.samples import write_group
from tests.ablation.toy_study import Toy


@pytest.fixture
def results(tmp_path):
    """A results folder, which is not there yet."""
    return tmp_path / "results"


@pytest.fixture
def groups(tmp_path):
    """Baseline and candidate of a comparison."""
    return write_group(tmp_path / "base"), write_group(tmp_path / "new", gain=0.25)


@pytest.fixture
def toy(tmp_path):
    return Toy(tmp_path)
