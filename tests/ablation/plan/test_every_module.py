"""Edits in every module that a stage can reach: arithmetic changes the stage's key, words and neighbours do not."""

import ast
import random
from functools import cache

import pytest

from ablation.config.settings import load_settings
from ablation.contract import fingerprint
from ablation.plan.build import build_plan
from tests.repository import ROOT, definitions

NEIGHBOURS = b"""
import json as _other_name
NEIGHBOUR = 3
def neighbour(x: int = NEIGHBOUR) -> int:
    from pathlib import Path
    return x + 1
"""


@pytest.fixture(scope="module")
def codes():
    """The code of every kind of stage of every study, as the plan writes it."""
    plan = build_plan(load_settings({"scale": "demo", "seeds": 1}, configs=ROOT / "configs"), root=ROOT)
    found = [fingerprint.Code(**config["code"]) for config in plan.configs.values()]
    return list({(code.names, *code.parts.items()): code for code in found}.values())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No file appears or goes; what is in them is edited in memory."""
    monkeypatch.setattr(fingerprint, "_find", cache(fingerprint._find))


def file_of(name):
    stem = ROOT.joinpath(*name.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


class OneMore(ast.NodeTransformer):
    """Makes the first number of a module one larger, or turns its first sum, comparison or condition round."""

    done = False

    def generic_visit(self, node):
        if not self.done:
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                node.value, self.done = node.value + 1, True
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
                node.op, self.done = ast.Sub(), True
            elif isinstance(node, ast.Compare):
                other = ast.In() if isinstance(node.ops[0], ast.NotIn) else ast.NotIn()
                node.ops, self.done = [other, *node.ops[1:]], True
            elif isinstance(node, ast.Return) and node.value is not None:
                node.value, self.done = ast.UnaryOp(ast.Not(), node.value), True
        return super().generic_visit(node)


def with_arithmetic(source, name):
    """Return the source with one edit in this definition; one that computes nothing begins to."""
    edit, tree = OneMore(), ast.parse(source)
    (node,) = [node for node in tree.body if getattr(node, "name", None) == name]
    edit.generic_visit(node)
    if not edit.done:
        node.body += ast.parse("MORE = 1 + 1").body
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def with_words(source):
    lines = source.decode().splitlines()
    tree = ast.parse(source)
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    found = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    for node in sorted(found, key=lambda node: node.lineno, reverse=True):
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + '"""Other words."""', "# a comment", ""]
    return "\n".join([*lines, "# the end", ""]).encode()


@pytest.fixture
def edits(monkeypatch):
    """Path -> the content that it seems to have."""
    read, found = cache(fingerprint.read_source), {}
    monkeypatch.setattr(fingerprint, "read_source", lambda path: found.get(path) or read(path))
    return found


def test_an_edit_counts_for_the_stages_that_reach_the_definition_and_no_others(codes, edits):
    reached = {id(code): definitions(code) for code in codes}
    draw, modules = random.Random(0), sorted(set().union(*(code.modules for code in codes)))
    assert len(modules) > 80
    judging = ("ablation.cli", "ablation.judge", "ablation.show", "ablation.store", "ablation.readers", "ablation.api")
    assert not [module for module in modules if module.startswith(judging)]
    edited = 0
    for module in modules:
        path = file_of(module)
        defined = [node for node in ast.parse(path.read_bytes()).body if hasattr(node, "name")]
        for node in draw.sample(defined, min(2, len(defined))):
            edits[path] = with_arithmetic(path.read_bytes(), node.name)
            using = [code for code in codes if (module, node.name) in reached[id(code)]]
            others = [code for code in codes if (module, node.name) not in reached[id(code)]]
            for code in using[:1]:
                assert fingerprint.changed(code, ROOT) == [module], node.name  # what the runner refuses
                edited += 1
            for code in draw.sample(others, min(2, len(others))):
                assert fingerprint.changed(code, ROOT) == [], (module, node.name)
            del edits[path]
    assert edited > 80


def test_words_and_unused_neighbours_count_nowhere(codes, monkeypatch):
    read = fingerprint.read_source
    monkeypatch.setattr(fingerprint, "read_source", cache(lambda path: with_words(read(path)) + NEIGHBOURS))
    for code in codes:
        assert fingerprint.changed(code, ROOT) == []
        now = fingerprint.code_of(code.names, ROOT, parts=code.parts, exclude=code.exclude)
        assert now.text != code.text  # the edit was seen
