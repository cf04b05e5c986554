"""What many tests of the tracker begin with."""

import pytest

from tests.ablation.readers.samples import arm


@pytest.fixture
def results(tmp_path):
    """A results folder, which is not there yet."""
    return tmp_path / "results"


@pytest.fixture
def arms(tmp_path):
    """Two sides of a comparison."""
    return arm(tmp_path / "base"), arm(tmp_path / "new", gain=0.25)
