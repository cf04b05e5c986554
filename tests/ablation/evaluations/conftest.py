"""Two sides that most tests compare."""

import pytest

from tests.ablation.evaluations.samples import arm


@pytest.fixture
def arms(tmp_path):
    return arm(tmp_path / "base"), arm(tmp_path / "new", gain=0.25)
