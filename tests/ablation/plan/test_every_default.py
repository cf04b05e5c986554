"""A stage's key holds every value that it reads, and a stage has no values but those; what follows from a changed
value is tested on a small study in `test_keys.py`.
"""

import ast
import sys
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml
from pydantic import BaseModel

from ablation.contract.absent import Absent
from ablation.plan.keys import config_modules, key_values
from tests.repository import ROOT
from tests.test_imports import modules

CONFIGS = [yaml.safe_load(path.read_text()) for path in ROOT.glob("configs/studies/*/_study.yaml")]


TASKS = "trainers.tasks.settings"  # the union of the settings in its modules
MODULES = sorted({TASKS}.union(*(config_modules(resolve_name(written["config"])) for written in CONFIGS)))


@cache
def source_of(module):
    return ast.parse(Path(sys.modules[module].__file__).read_text())


@pytest.mark.parametrize("module", MODULES)
def test_no_field_is_left_out_of_a_key(module):
    for name, model in vars(sys.modules[module]).items():
        if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module:
            given = {
                field: None if info.is_required() else info.get_default() for field, info in model.model_fields.items()
            }
            instance = model.model_construct(**given)
            plain = instance.model_dump(mode="json", warnings=False)
            marks = {field: info.metadata for field, info in model.model_fields.items()}
            marked = {field for field, found in marks.items() if any(isinstance(mark, Absent) for mark in found)}
            assert plain.keys() - key_values(instance, plain).keys() <= marked, name


def test_config_modules_hold_fields_bounds_and_validators():
    """What decides which formula runs is in modules that the fingerprint sees: these it does not."""
    # The answer of the first is in the key; that of the last tells whether a stage can start here.
    asked_by_the_plan = {"without_effect", "unseen_changes", "needed_packages"}
    for module in MODULES:
        defined = [node for node in ast.walk(source_of(module)) if isinstance(node, ast.FunctionDef)]
        inner = {id(node) for outer in defined for node in ast.walk(outer) if node is not outer}
        for node in defined:
            if not node.name.startswith("_") and id(node) not in inner:
                assert node.name in asked_by_the_plan, f"{module}.{node.name}"


def built(tree):
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    found = {name: getattr(sys.modules[module], original) for name, (module, original) in names.items()}
    return {name for name in called & found.keys() if isinstance(found[name], type)}


def test_no_stage_makes_a_config_model():
    """What it left out would be the default of today, and in no key: a stage has the values that it is given."""
    assert built(ast.parse("from trainers.policy.config import Clip as C\nC(clip_low=0.1)")) == {"C"}
    made = {}
    for path in sorted((ROOT / "trainers").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in MODULES and (names := built(ast.parse(path.read_text()))):
            made[module] = names
    assert made == {}


def test_trainers_import_nothing_from_the_modules_that_choose_parts():
    """These modules are in no key: their choice is."""
    choosers = {written["parts"].partition(":")[0] for written in CONFIGS if written.get("parts")}
    assert choosers
    for name, imported in modules("trainers").items():
        assert name in choosers or not imported & choosers, name
