"""The stages of the study, run once each."""

import shutil

import pytest

from tests.trainers.gad.helpers import config, run_before, run_stages


@pytest.fixture(scope="session")
def before(tmp_path_factory):
    """Data, base model and SeqKD's student."""
    root = tmp_path_factory.mktemp("gad")
    run_before(root)
    return root


@pytest.fixture(scope="session")
def after(before, tmp_path_factory):
    """And the adversarial stages."""
    root = tmp_path_factory.mktemp("trained")
    shutil.copytree(before, root, dirs_exist_ok=True)
    run_stages(root, config(), "warmup", "gad")
    return root


@pytest.fixture
def root(before, tmp_path):
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def trained(after, tmp_path):
    shutil.copytree(after, tmp_path, dirs_exist_ok=True)
    return tmp_path
