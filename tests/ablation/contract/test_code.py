"""Which files are the code of a command, or of a trainer's stage, and what of them counts."""

import os
import shlex

import pytest

from ablation.contract.code import changed, code_files, code_of, named_files
from ablation.contract.errors import ConfigError
from tests.ablation.toy_study import CODE
from tests.time_limit import time_limit


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def root(tmp_path):
    files = {"train.py": "x = 1  # one\n", "src/a.py": '"""A."""\ny = 2\n', "src/deep/b c.yaml": "k: 1\n"}
    files |= {"src/__pycache__/a.cpython-311.pyc": "no code", "src/.hidden": "no code", "other.py": ""}
    return write(tmp_path, files)


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        (["train.py"], ["train.py"]),
        (["src"], ["src/a.py", "src/deep/b c.yaml"]),
        (["**/*.py"], ["other.py", "src/a.py", "train.py"]),
        (["src/*"], ["src/a.py"]),
        (["s*/**"], ["src/a.py", "src/deep/b c.yaml"]),
        (["."], ["other.py", "src/a.py", "src/deep/b c.yaml", "train.py"]),
        (["src/.hidden"], ["src/.hidden"]),
    ],
)
def test_what_patterns_name(root, patterns, files):
    assert list(code_files(patterns, root).files) == files


def test_python_counts_by_its_syntax_tree_and_all_else_by_its_bytes(root):
    code = code_files(["train.py", "src"], root)
    (root / "train.py").write_text("# another comment\nx = 1\n")
    (root / "src/a.py").write_text('"""Other words."""\n\ny = 2\n')
    assert changed(code, root) == []
    (root / "train.py").write_text("x = 2\n")
    (root / "src/deep/b c.yaml").write_text("k: 1 \n")
    (root / "src/new.py").touch()
    (root / "src/a.py").unlink()
    assert changed(code, root) == ["src/a.py", "src/deep/b c.yaml", "src/new.py", "train.py"]


@pytest.mark.parametrize("pattern", ["gone.py", "sorc/", "src/*.txt"])
def test_a_pattern_that_names_nothing_is_refused(root, pattern):
    with pytest.raises(ConfigError, match="matches no file in"):
        code_files([pattern], root)


@pytest.mark.parametrize("pattern", ["src", "src/**", "."])
def test_pipes_are_not_waited_for_and_what_links_lead_to_counts_once(root, pattern):
    os.mkfifo(root / "src/pipe")
    for name in ("aa", "round", "again"):
        (root / "src" / name).symlink_to(".")
    (root / "src/deep/up").symlink_to("../..")
    (root / "elsewhere").symlink_to("src/deep")
    with time_limit():
        code = code_files([pattern], root)
        assert (
            {"src/a.py", "src/deep/b c.yaml"}
            <= set(code.files)
            <= {"src/a.py", "src/deep/b c.yaml"}
            | {f"{'src/deep/up/' if pattern != '.' else ''}{name}.py" for name in ("other", "train")}
        )
        assert changed(code, root) == []


def test_what_the_jobs_write_is_not_code(root):
    for folder in ("results/stages", "reports"):
        (root / folder).mkdir(parents=True)
    code = code_files(["."], root, [root / "results", root / "reports"])
    for name in ("results/stages/log.txt", "reports/index.html"):
        (root / name).touch()
    assert changed(code, root) == []
    (root / "results.py").touch()
    assert changed(code, root) == ["results.py"]


TREE = {
    "src/pkg/__init__.py": "",
    "src/pkg/train.py": "from . import losses\nfrom ..aside import x\nimport numpy, tools.run\n",
    "src/pkg/losses.py": "from .deep.more import f\n",
    "src/pkg/deep/more.py": "def f():\n    import pkg.late\n",
    "src/pkg/late.py": "from pkg import constant\n",
    "src/pkg/__main__.py": "from pkg.train import *\n",
    "src/pkg/unused.py": "",
    "src/aside.py": "",
    "tools/run.py": "import beside\n",
    "tools/beside.py": "",
    "lib/pkg/train.py": "",
    "data/a.jsonl": "{}",
    "venv/pyvenv.cfg": "",
    "venv/bin/python": "",
}
TRAIN = ("__init__", "train", "losses", "deep/more", "late")


@pytest.fixture
def project(tmp_path):
    return write(tmp_path, TREE)


@pytest.mark.parametrize(
    ("words", "patterns", "reached"),
    [
        ("python -m pkg.train", [], [*TRAIN, "../aside", "../../tools/run", "../../tools/beside"]),
        ("python -m pkg", [], [*TRAIN, "__main__", "../aside", "../../tools/run", "../../tools/beside"]),
        ("python -mpkg.deep.more", [], ["__init__", "deep/more", "late"]),
        ("env PYTHONPATH=lib python -m pkg.train", [], ["../../lib/pkg/train"]),
        ("sh -c 'PYTHONPATH=x:lib python -m pkg.train && true'", [], ["../../lib/pkg/train"]),
        ("python -c 'from pkg import late'", [], ["__init__", "late"]),
        ("python tools/run.py", ["tools/run.py"], ["../../tools/run", "../../tools/beside"]),
        ("python -m tools.run", [], ["../../tools/run", "../../tools/beside"]),
        ("python -m torch.distributed.run x", ["src/aside.py"], ["../aside"]),
        ("git commit -m ../x -m /etc/x -m . -m '' -c '\"'", ["src/aside.py"], ["../aside"]),
    ],
)
def test_what_is_imported_counts(project, words, patterns, reached):
    code = code_files(patterns, project, (), shlex.split(words))
    assert list(code.files) == sorted(os.path.normpath(f"src/pkg/{name}.py") for name in reached)
    assert changed(code, project) == []
    last = list(code.files)[-1]
    (project / last).write_text("changed = 1\n")
    assert last in changed(code, project)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["x", "--data=data/a.jsonl"], ["data/a.jsonl"]),
        (["x", "+data.files=[data/a.jsonl,tools/run.py]"], ["data/a.jsonl", "tools/run.py"]),
        (["x", "@data/a.jsonl", "a,data/a.jsonl", "-DX=y=data/a.jsonl"], ["data/a.jsonl"]),
        (["x", "{root}/data/a.jsonl", "--again={root}/data/a.jsonl"], ["data/a.jsonl"]),
        (["bash", "-lc", "cd . && python tools/run.py <data/a.jsonl"], ["tools/run.py", "data/a.jsonl"]),
        (["python", "-c", "open('data/a.jsonl')  # " + 300 * "x"], ["data/a.jsonl"]),
        (["x", 300 * "x", "data", ".", "", "../x", "/etc/passwd", "a\0b"], []),
    ],
)
def test_the_files_that_stand_in_a_command(project, words, named):
    assert named_files([word.replace("{root}", str(project)) for word in words], project) == named


# Of a trainer's stage


@pytest.fixture
def toy(tmp_path):
    return write(tmp_path, CODE)


def test_a_trainer_reaches_what_it_imports_its_parts_and_the_harness(toy):
    write(toy, {"ablation/runner/stage.py": "from ablation.runner import other\n", "ablation/runner/other.py": ""})
    harness = {"ablation/contract/health.py", "ablation/runner/lifetime.py", "ablation/runner/stage.py"}
    harness |= {"trainers/harness.py", "trainers/__init__.py"}
    code = code_of("trainers.toy.train", toy)
    assert code.files.keys() - harness == {f"trainers/toy/{name}.py" for name in ("__init__", "train", "helper")}
    with_part = code_of("trainers.toy.train", toy, parts={"loss": "trainers.objectives.a.loss"})
    assert with_part.files.keys() - code.files.keys() == {
        f"trainers/objectives/{name}.py" for name in ("__init__", "a")
    }
    without = code_of("trainers.toy.train", toy, exclude=["trainers.toy.helper"])
    assert code.files.keys() - without.files.keys() == {"trainers/toy/helper.py"}
    assert len({each.digest for each in (code, with_part, without)}) == 3


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("import trainers.shared", True),
        ("from trainers import shared", True),
        ("from trainers.shared import *", True),
        ("from .. import shared", True),
        ("def X():\n    from ..shared import LIMIT\n    return LIMIT", True),
        ("try:\n    from trainers.shared import LIMIT as X\nexcept ImportError:\n    pass", True),
        ("from trainers.between import LIMIT as X", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trainers.shared import LIMIT", False),
        ("from trainers import toy", False),
    ],
)
def test_every_form_of_import_is_followed_but_for_type_checkers(toy, line, counts):
    write(toy, {"trainers/between.py": "from trainers import shared\nfrom trainers.shared import LIMIT\n"})
    write(toy, {"trainers/toy/user.py": f"{line}\n\ndef run(stage):\n    return 1\n"})
    code = code_of("trainers.toy.user", toy)
    write(toy, {"trainers/shared.py": "LIMIT = 4\n"})
    assert changed(code, toy) == (["trainers/shared.py"] if counts else [])


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("def f(x): return 2 * x", "def f(x): return 3 * x", True),
        ("def f():\n    'd'\n    'e'", "def f():\n    'd'", True),
        ("class f:\n    a: int = 1\n    b: int = 2", "class f:\n    b: int = 2\n    a: int = 1", True),
        ("import torch\nf = 1", "import torch\nimport torch_npu\nf = 1", True),
        ("def f(x): return 2 * x", "# new\n\ndef f(x):\n\n    '''Text.'''\n    return (2 * x)", False),
        ("'''Text.'''\nclass f:\n    '''Text.'''\n    a = 1", "class f:\n    '''Other.'''\n    a = 1", False),
    ],
)
def test_statements_count_and_words_and_layout_do_not(toy, before, after, counts):
    write(toy, {"trainers/toy/helper.py": f"{before}\nadd = f\n"})
    code = code_of("trainers.toy.train", toy)
    write(toy, {"trainers/toy/helper.py": f"{after}\nadd = f\n"})
    assert (code_of("trainers.toy.train", toy).digest != code.digest) == counts
    assert changed(code, toy) == (["trainers/toy/helper.py"] if counts else [])


def test_missing_and_broken_modules(toy):
    for name in ("trainers.nothing.at_all", "os"):
        with pytest.raises(ConfigError, match="the module does not exist"):
            code_of(name, toy)
    with pytest.raises(ConfigError, match="has no run"):
        code_of("trainers.shared", toy)
    with pytest.raises(ConfigError, match="has no gain"):
        code_of("trainers.toy.train", toy, parts={"loss": "trainers.objectives.a.gain"})
    write(toy, {"trainers/toy/helper.py": "def ("})
    with pytest.raises(ConfigError, match="not valid Python"):
        code_of("trainers.toy.train", toy)


def test_what_a_stage_names_counts_even_in_an_excluded_module(toy):
    write(toy, {"trainers/toy/parts.py": "def loss(x):\n    return 2 * x\n"})
    excluded = ["trainers.toy.parts", "trainers.toy.train"]
    code = code_of("trainers.toy.train", toy, parts={"loss": "trainers.toy.parts.loss"}, exclude=excluded)
    assert {"trainers/toy/parts.py", "trainers/toy/train.py"} <= code.files.keys()


def test_a_name_that_is_bound_within_try_is_found(toy):
    write(
        toy,
        {"trainers/toy/parts.py": "try:\n    from fast import loss\nexcept ImportError:\n    def loss(x): return x\n"},
    )
    assert code_of("trainers.toy.train", toy, parts={"loss": "trainers.toy.parts.loss"}).files


def test_a_module_that_a_command_can_newly_import_is_a_change(root):
    (root / "train.py").write_text("try:\n    import extra\nexcept ImportError:\n    extra = None\n")
    code = code_files(["train.py"], root, words=["python", "train.py"])
    assert changed(code, root) == []
    (root / "extra.py").write_text("x = 1\n")
    assert changed(code, root) == ["extra.py"]
