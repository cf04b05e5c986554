"""The stages before adversarial training, run once."""

import shutil

import pytest

from tests.trainers.gad.helpers import run_before


@pytest.fixture(scope="session")
def before(tmp_path_factory):
    """Data, base model and SeqKD's student."""
    root = tmp_path_factory.mktemp("gad")
    run_before(root)
    return root


@pytest.fixture
def root(before, tmp_path):
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    return tmp_path
