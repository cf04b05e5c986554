"""Stages that several tests look at, run once."""

import pytest

from tests.trainers.demonstrations.helpers import config, shared, variant


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Learner, embeddings and candidates."""
    return shared(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def whole(folders, tmp_path_factory):
    """A variant: its folders and its last metrics."""
    return variant(tmp_path_factory.mktemp("whole"), folders, config())
