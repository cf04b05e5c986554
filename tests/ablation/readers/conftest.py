"""Files of the package that a test module names: `PACKAGE`, and `SCRIPT`, which writes them again."""

import json

import pytest

from tests.ablation.readers.stored import SOURCES, make


@pytest.fixture(scope="module", params=SOURCES)
def folder(request, tmp_path_factory):
    """As they are stored and, where the package is installed, as it writes them now."""
    package = request.module.PACKAGE
    return make(package, request.module.SCRIPT, request.param, tmp_path_factory.mktemp(package))


@pytest.fixture(scope="module")
def told(folder):
    """What the package itself says of them."""
    return json.loads((folder / "expected.json").read_text())


@pytest.fixture(scope="module")
def written(request, tmp_path_factory):
    """As they are stored."""
    package = request.module.PACKAGE
    return make(package, "", "written", tmp_path_factory.mktemp(package))
