"""One edit in every module that a stage can reach: arithmetic changes the stage's key, words do not."""

import ast
from functools import cache
from pathlib import Path

import pytest

from ablation.config.settings import load_settings
from ablation.contract import fingerprint
from ablation.plan.build import build_plan

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def codes():
    """The code of every kind of stage of every study, as the plan writes it."""
    plan = build_plan(load_settings({"scale": "demo", "seeds": 1}, configs=ROOT / "configs"), root=ROOT)
    found = [fingerprint.Code(**config["code"]) for config in plan.configs.values()]
    return list({(code.modules, *code.parts.items()): code for code in found}.values())


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


def with_arithmetic(source):
    """Return the source with one edit; a module that computes nothing begins to."""
    edit = OneMore()
    tree = edit.visit(ast.parse(source))
    if not edit.done:
        tree.body += ast.parse("MORE = 1 + 1").body
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def with_words(source):
    """Return the source with other docstrings and comments."""
    lines = source.decode().splitlines()
    tree = ast.parse(source)
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    found = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    for node in sorted(found, key=lambda node: node.lineno, reverse=True):
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + '"""Other words."""', "# a comment", ""]
    return "\n".join([*lines, "# the end", ""]).encode()


def test_every_module_counts_for_the_stages_that_reach_it_and_no_others(codes, monkeypatch):
    modules = sorted(set().union(*(code.trees for code in codes)))
    assert len(modules) > 80
    read, edits = cache(fingerprint.read_source), {}
    monkeypatch.setattr(fingerprint, "read_source", lambda path: edits.get(path) or read(path))
    for module in modules:
        path = file_of(module)
        edits[path] = with_arithmetic(read(path))
        reached = [code for code in codes if module in code.trees]
        for code in reached[:2]:
            assert fingerprint.changed(code, ROOT) == [module]  # what the runner refuses
            trees = fingerprint.code_of(code.modules, ROOT, parts=code.parts, exclude=code.exclude).trees
            assert fingerprint.digest_of(trees) != fingerprint.digest_of(code.trees), module
        for code in [code for code in codes if code not in reached][:10]:
            assert fingerprint.changed(code, ROOT) == [], module
        del edits[path]


def test_words_count_nowhere(codes, monkeypatch):
    read = fingerprint.read_source
    monkeypatch.setattr(fingerprint, "read_source", cache(lambda path: with_words(read(path))))
    for code in codes:
        assert fingerprint.changed(code, ROOT) == []
        now = fingerprint.code_of(code.modules, ROOT, parts=code.parts, exclude=code.exclude)
        assert now.trees == code.trees
        assert now.text != code.text  # the edit was seen
