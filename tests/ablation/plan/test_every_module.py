"""Edits in every module that a stage can reach: statements change the stage's code, words do not."""

import ast
import random
import shutil

import pytest

from ablation.config.settings import load_settings
from ablation.contract.code import Code, changed
from ablation.plan.build import build_plan
from tests.repository import ROOT


@pytest.fixture(scope="module")
def codes():
    """The code of every kind of stage of every study, as the plan writes it."""
    plan = build_plan(load_settings({"scale": "demo", "seeds": 1}, configs=ROOT / "configs"), root=ROOT)
    found = [Code(**config["code"]) for config in plan.configs.values()]
    return list({(code.entry, *code.parts.items()): code for code in found}.values())


@pytest.fixture
def copy(tmp_path):
    """A copy of the packages, to be edited."""
    for name in ("trainers", "ablation"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def with_words(source):
    lines = source.splitlines()
    documented = [
        each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    found = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    for node in sorted(found, key=lambda node: node.lineno, reverse=True):
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + '"""Other words."""', "# a comment", ""]
    return "\n".join([*lines, "# the end", ""])


def test_an_edit_counts_for_the_stages_that_reach_the_file_and_no_others(codes, copy):
    draw, files = random.Random(0), sorted(set().union(*(code.files for code in codes)))
    assert len(files) > 80
    judging = tuple(f"ablation/{name}" for name in ("cli", "judge", "show", "store", "readers", "api"))
    assert not [file for file in files if file.startswith(judging)]
    for file in files:
        source = (copy / file).read_text()
        (copy / file).write_text(f"{source}\nMORE = 1 + 1\n")
        using, others = ([code for code in codes if (file in code.files) == reached] for reached in (True, False))
        assert changed(draw.choice(using), copy) == [file]  # what the runner refuses
        for code in draw.sample(others, min(2, len(others))):
            assert changed(code, copy) == [], file
        (copy / file).write_text(source)


def test_words_count_nowhere(codes, copy):
    for path in copy.rglob("*.py"):
        path.write_text(with_words(path.read_text()))
    for code in codes:
        assert all((copy / file).read_bytes() != (ROOT / file).read_bytes() for file in code.files)
        assert changed(code, copy) == []
