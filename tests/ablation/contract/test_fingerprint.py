import pytest

from ablation.contract.errors import ConfigError
from ablation.contract.fingerprint import fingerprint, reachable
from tests.ablation.toy_study import CODE


@pytest.fixture
def root(tmp_path):
    write(tmp_path, CODE)
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_closure_has_relative_imports_and_packages(root):
    assert reachable(["trainers.toy.train"], root) == {
        "trainers",
        "trainers.toy",
        "trainers.toy.train",
        "trainers.toy.helper",
    }
    assert "trainers.shared" in reachable(["trainers.toy.prepare"], root)


@pytest.mark.parametrize(
    "line",
    [
        "import trainers.shared",
        "import trainers.shared as s",
        "from trainers import shared",
        "from trainers.shared import LIMIT",
        "from .. import shared",
        "from ..shared import LIMIT",
        "def f():\n    from ..shared import LIMIT",
        "if True:\n    try:\n        import trainers.shared\n    except ImportError:\n        pass",
    ],
)
def test_every_form_of_import_is_followed(root, line):
    write(root, {"trainers/toy/evaluate.py": line + "\n"})
    assert "trainers.shared" in reachable(["trainers.toy.evaluate"], root)


def test_imports_inside_a_package_file_are_relative_to_it(root):
    write(root, {"trainers/toy/__init__.py": "from . import helper\n"})
    assert "trainers.toy.helper" in reachable(["trainers.toy.evaluate"], root)


def test_cycles_and_foreign_packages(root):
    write(root, {"trainers/shared.py": "import os, numpy, trainers.toy.prepare, ablation.contract.health.rules\n"})
    assert "trainers.shared" in reachable(["trainers.toy.prepare"], root)
    assert not any(name.startswith(("os", "numpy", "ablation")) for name in reachable(["trainers.toy.prepare"], root))


A = "trainers/objectives/a.py"


@pytest.mark.parametrize(
    "text",
    [
        "def loss(x): return x",
        "# new\n\n\ndef loss(x):\n\n    '''Other text.'''\n    return (x)\n",
    ],
)
def test_comments_docstrings_and_layout_do_not_count(root, text):
    before = fingerprint(["trainers.objectives.a"], root)
    write(root, {A: text})
    assert fingerprint(["trainers.objectives.a"], root) == before


@pytest.mark.parametrize(
    "text",
    [
        "def loss(x): return -x",
        "def loss(y): return y",
        "def loss(x): return x\nZ = 1\n",
        "def loss(x):\n    'd'\n    'e'\n",
    ],
)
def test_code_counts(root, text):
    before = fingerprint(["trainers.objectives.a"], root)
    write(root, {A: text})
    assert fingerprint(["trainers.objectives.a"], root) != before


def test_only_reachable_code_counts(root):
    before = {name: fingerprint([f"trainers.toy.{name}"], root) for name in ("prepare", "train", "evaluate")}
    write(root, {"trainers/toy/helper.py": "def add(a, b):\n    return a - b\n"})
    after = {name: fingerprint([f"trainers.toy.{name}"], root) for name in before}
    assert {name for name in before if before[name] != after[name]} == {"train"}


def test_excluded_modules_are_not_followed(root):
    before = fingerprint(["trainers.toy.prepare"], root, exclude=["trainers.shared"])
    write(root, {"trainers/shared.py": "LIMIT = 4\nimport trainers.toy.helper\n"})
    assert fingerprint(["trainers.toy.prepare"], root, exclude=["trainers.shared"]) == before
    assert fingerprint(["trainers.toy.prepare"], root) != before


def test_moving_code_between_modules_counts_and_order_does_not(root):
    names = ["trainers.objectives.a", "trainers.objectives.b"]
    one = fingerprint(names, root)
    assert fingerprint(reversed(names), root) == one
    a, b = (root / "trainers/objectives/a.py").read_text(), (root / "trainers/objectives/b.py").read_text()
    write(root, {A: b + "# swapped\n", "trainers/objectives/b.py": a + "# swapped\n"})
    assert fingerprint(names, root) != one


def test_missing_and_broken_modules(root):
    with pytest.raises(ConfigError, match="no such module"):
        fingerprint(["trainers.toy.nothing"], root)
    with pytest.raises(ConfigError, match="no such module"):
        fingerprint(["os"], root)
    write(root, {A: "def ("})
    with pytest.raises(ConfigError, match="not valid Python"):
        fingerprint(["trainers.objectives.a"], root)
