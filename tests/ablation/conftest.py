"""What many tests of the tracker begin with."""

import pytest


@pytest.fixture
def results(tmp_path):
    """A results folder, which is not there yet."""
    return tmp_path / "results"
