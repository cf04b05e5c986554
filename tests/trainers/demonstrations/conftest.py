"""Learner, embeddings and candidates, run once."""

import pytest

from tests.trainers.demonstrations.helpers import shared


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    return shared(tmp_path_factory.mktemp("shared"))
