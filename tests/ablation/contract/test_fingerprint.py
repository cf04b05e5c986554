import pytest

from ablation.contract.errors import ConfigError
from ablation.contract.fingerprint import code_of
from tests.ablation.toy_study import CODE

A = "trainers/objectives/a.py"
USER = "trainers/toy/user.py"


@pytest.fixture
def root(tmp_path):
    write(tmp_path, CODE)
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def reachable(names, root):
    return set(code_of(names, root).modules)


def fingerprint(names, root, **words):
    return code_of(names, root, **words).digest


def differs(root, before, after, of="trainers.toy.user:run"):
    """Whether the code of an entry is another one where these files are replaced."""
    write(root, before)
    old = fingerprint([of], root)
    write(root, after)
    return fingerprint([of], root) != old


def test_closure_has_relative_imports_and_packages(root):
    assert reachable(["trainers.toy.train"], root) == {
        "trainers",
        "trainers.toy",
        "trainers.toy.train",
        "trainers.toy.helper",
    }
    assert "trainers.shared" in reachable(["trainers.toy.prepare:run"], root)


@pytest.mark.parametrize(
    "line",
    [
        "import trainers.shared\nX = trainers.shared.LIMIT",
        "import trainers.shared as s\nX = s.LIMIT",
        "import trainers.shared as s\nX = getattr(s, 'LIMIT')",
        "from trainers import shared\nX = shared.LIMIT",
        "from trainers.shared import LIMIT as X",
        "from trainers.shared import *\nX = LIMIT",
        "from .. import shared\nX = shared.LIMIT",
        "from ..shared import LIMIT\nX: 'LIMIT' = 1",
        "def X():\n    from ..shared import LIMIT\n    return LIMIT",
        "def X():\n    import trainers.shared\n    return trainers.shared.LIMIT",
        "if True:\n    try:\n        from trainers.shared import LIMIT as X\n    except ImportError:\n        pass",
        "from trainers.between import LIMIT as X",
        "from trainers.shared import LIMIT\ndef X(y=LIMIT):\n    return y",
        "from trainers import shared\nclass X:\n    def f(self):\n        return lambda: shared.LIMIT",
    ],
)
def test_every_form_of_reference_is_followed(root, line):
    write(root, {"trainers/between.py": "from trainers import shared\nfrom trainers.shared import LIMIT\n"})
    files = {USER: f"{line}\n\ndef run(stage):\n    return X\n"}
    other = {"trainers/shared.py": "LIMIT = 4\n"}
    assert differs(root, files, other)


@pytest.mark.parametrize(
    "line",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trainers.shared import LIMIT",
        "from trainers import shared\ndef unused():\n    return shared.LIMIT",
        "from trainers.shared import LIMIT",
        "if __name__ == '__main__':\n    import trainers.shared",
    ],
)
def test_what_is_not_used_is_not_followed(root, line):
    files = {USER: f"{line}\n\ndef run(stage):\n    return 1\n"}
    assert not differs(root, files, {"trainers/shared.py": "LIMIT = 4\n"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from math import sin as f", "from math import cos as f"),
        ("def f(): return 1", "def f(): return 2"),
        ("def f(): return 1\ndef f(): return 2", "def f(): return 2\ndef f(): return 1"),
        ("f = []\nf.append(1)", "f = []\nf.append(2)"),
        ("from functools import cache\n@cache\ndef f(): pass", "from functools import cache\ndef f(): pass"),
        (
            "D = {}\ndef f(): return D\n@D.get\ndef g(): return 1",
            "D = {}\ndef f(): return D\n@D.get\ndef g(): return 2",
        ),
        ("class A:\n    x = 1\nclass B(A): pass\nf = B", "class A:\n    x = 2\nclass B(A): pass\nf = B"),
        ("class f:\n    a: int = 1\n    b: int = 2", "class f:\n    b: int = 2\n    a: int = 1"),
        ("def f():\n    'd'\n    'e'", "def f():\n    'd'"),
        ("import torch\nf = 1", "import torch\nimport torch_npu\nf = 1"),  # for its effects
        ("import torch\nf = torch.ones", "import torch\nimport torch.backends.mkl\nf = torch.ones"),
        ("D = {}\nclass A:\n    D['a'] = 1\ndef f(): return D", "D = {}\nclass A:\n    D['a'] = 2\ndef f(): return D"),
        (
            "D = {}\n@D.setter\ndef g(): return 1\ndef f(): return D",
            "D = {}\n@D.setter\ndef g(): return 2\ndef f(): return D",
        ),
        ("L = 1\ndef f():\n    global L\n    L += 1", "L = 2\ndef f():\n    global L\n    L += 1"),
        ("K = 1\nf = lambda: g()\ndef g(): return K", "K = 2\nf = lambda: g()\ndef g(): return K"),
        ("import importlib as i\nK = 1\nf = i.import_module", "import importlib as i\nK = 2\nf = i.import_module"),
        ("K = 1\ndef f(): return object.__subclasses__()", "K = 2\ndef f(): return object.__subclasses__()"),
        ("K = 1\ndef f(): return __import__('sys').modules", "K = 2\ndef f(): return __import__('sys').modules"),
    ],
)
def test_code_counts(root, before, after):
    run = "\n\ndef run(stage):\n    return f\n"
    assert differs(root, {USER: before + run}, {USER: after + run})


@pytest.mark.parametrize(
    "after",
    [
        "def f(x): return K * x",
        "# new\n\n\ndef f(x):\n\n    '''Other text.'''\n    return (K * x)",
        "import os, re\ndef g(x): return x\nM = 3\nclass C:\n    a: int = 1\n\n\ndef f(x): return K * x",
        "def f(x): return K * x\ndef g(x): return f(x) + 1",
    ],
)
def test_words_layout_and_unused_neighbours_do_not_count(root, after):
    run = "\nK = 2\n\ndef run(stage):\n    return f\n"
    assert not differs(root, {USER: 'def f(x):\n    """Return it."""\n    return K * x' + run}, {USER: after + run})


def test_a_name_that_is_imported_under_that_of_another_counts(root):
    swapped = [
        f"from trainers.objectives.a import loss as {one}\nfrom trainers.objectives.b import loss as {two}\n"
        "def run(stage):\n    return one, two\n"
        for one, two in (("one", "two"), ("two", "one"))
    ]
    assert differs(root, {USER: swapped[0]}, {USER: swapped[1]})


def test_names_of_an_entry_that_say_how_it_is_run_count(root):
    run = "\ndef run(stage):\n    return 1\n"
    assert differs(root, {USER: run}, {USER: "from trainers.shared import LIMIT as RANKS" + run})


def test_missing_and_broken_modules(root):
    for name in ("trainers.nothing.at_all", "os", "trainers.nothing:run"):
        with pytest.raises(ConfigError, match="no such module"):
            code_of([name], root)
    for name in ("trainers.toy.train:walk", "trainers.toy.train.walk"):
        with pytest.raises(ConfigError, match="has no walk"):
            code_of([name], root)
    write(root, {A: "def ("})
    with pytest.raises(ConfigError, match="not valid Python"):
        code_of(["trainers.objectives.a"], root)
