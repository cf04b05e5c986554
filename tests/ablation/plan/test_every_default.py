"""A stage's key holds every value that it reads: each default of each config model is changed in turn.

A field's default is changed in the syntax tree of its module, which is run again with those that import it, as after
an edit; the real studies are planned before and after. Which keys must differ follows from the resolved values alone.
"""

import ast
import contextlib
import pkgutil
import sys
from copy import deepcopy
from functools import cache
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from ablation.config import study_file, variants
from ablation.config.settings import load_settings
from ablation.config.yaml_io import load_yaml
from ablation.contract import fingerprint
from ablation.contract.absent import Absent
from ablation.contract.errors import ConfigError
from ablation.plan import build
from ablation.plan.keys import config_modules, key_values

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = {path.parent.name: yaml.safe_load(path.read_text()) for path in ROOT.glob("configs/studies/*/_study.yaml")}


def class_of(dotted):
    module, _, name = dotted.partition(":")
    __import__(module)
    return getattr(sys.modules[module], name)


MODULES = {study: config_modules(class_of(written["config"])) for study, written in CONFIGS.items()}
TASKS = "trainers.tasks.settings"  # holds no class, but the union of all in its modules
MODULES |= {study: names | {TASKS} for study, names in MODULES.items() if any(n.startswith(TASKS) for n in names)}


@cache
def source_of(module):
    return ast.parse(Path(sys.modules[module].__file__).read_text())


@cache  # a changed default imports nothing else
def imports(module):
    if module == TASKS:
        return {f"{TASKS}.{found.name}" for found in pkgutil.iter_modules(sys.modules[TASKS].__path__)}
    return {node.module for node in ast.walk(source_of(module)) if isinstance(node, ast.ImportFrom)}


@cache
def in_order():
    """All config modules, each after those that it imports."""
    waiting, ordered = sorted(set(chain(*MODULES.values()))), []
    while waiting:
        ready = [module for module in waiting if not imports(module) & set(waiting) - {module}]
        ordered += ready
        waiting = [module for module in waiting if module not in ready]
    return ordered


def is_default(keyword):
    return keyword.arg == "default"


def defaults(module):
    """Yield (class, field, node of its default) for every default that is written in a module and could be another."""
    for found in source_of(module).body:
        fields = [node for node in getattr(found, "body", ()) if isinstance(node, ast.AnnAssign) and node.value]
        for node in fields if isinstance(found, ast.ClassDef) else ():
            info = getattr(sys.modules[module], found.name).model_fields.get(node.target.id)
            if info is None:  # a ClassVar: what only the validators of a configuration look at
                continue
            if not info.is_required() and not (
                get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
            ):
                yield found.name, node.target.id, node


@contextlib.contextmanager
def default(module, name, texts):
    """Run the module, and those that import it, with these {field: text} as the defaults of a class."""
    nodes = {field: node for one, field, node in defaults(module) if one == name and field in texts}
    written = {field: node.value for field, node in nodes.items()}
    affected, before = [], {}
    for other in in_order():
        if other == module or imports(other) & set(affected):
            affected.append(other)
    try:
        for field, node in nodes.items():
            value = ast.parse(texts[field], mode="eval").body
            if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "Field":
                keywords = [ast.keyword("default", value) if is_default(k) else k for k in node.value.keywords]
                value = ast.Call(node.value.func, node.value.args, keywords)
            node.value = ast.fix_missing_locations(ast.copy_location(value, node.value))
        for other in affected:
            before[other], fresh = sys.modules[other], ModuleType(other)
            fresh.__file__ = before[other].__file__
            if hasattr(before[other], "__path__"):
                fresh.__path__ = before[other].__path__
            sys.modules[other] = fresh
            exec(compile(source_of(other), fresh.__file__, "exec"), fresh.__dict__)
        yield
    finally:
        for field, node in nodes.items():
            node.value = written[field]
        sys.modules.update(before)


def candidates(info):
    """Texts of other defaults that the field's own bounds allow."""
    kind = TypeAdapter(Annotated[info.annotation, info])
    if isinstance(info.default, BaseModel):
        model = type(info.default)
        for dump in mutations(info.default.model_dump(mode="json")):
            with contextlib.suppress(ValidationError):
                model.model_validate(dump)
                yield f"{model.__name__}.model_validate({dump!r})"
        return
    for value in [*mutations(info.default), *others(info.annotation)]:
        with contextlib.suppress(ValidationError):
            kind.validate_python(value)
            if value != info.default:
                yield text_of(tuple(value) if isinstance(info.default, tuple) else value)


def text_of(value):
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}.model_validate({value.model_dump(mode='json')!r})"
    return repr(value)


def others(annotation):
    """Values that the types in an annotation suggest."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        yield from ([word] for word in get_args(annotation))
        yield list(get_args(annotation)[:2])
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        with contextlib.suppress(ValidationError):
            yield annotation()
    else:
        yield from {int: (1, 2, 7), float: (0.5, 2.0), str: ("x",), bool: (True,)}.get(annotation, ())
        yield from (value for inner in get_args(annotation) for value in others(inner))


def mutations(value):
    """Values like this one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value * 2, value - 1, value + 4, value // 2)
    elif isinstance(value, float):
        yield from (value * 0.9, value / 2, value * 2, value + 0.1, value + 1)
    elif isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, list | tuple):
        yield from ([*value[:-1]], [*value, *value[:1]])
        for place, item in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in mutations(item))
    elif isinstance(value, dict):
        for name, item in reversed(value.items()):
            yield from (value | {name: other} for other in mutations(item))


# What a validator binds to other fields is changed together with them.
BOUND = {("Split", "train"): {"dev": "0.2", "train": "0.5"}, ("Split", "dev"): {"dev": "0.2", "train": "0.5"}}
BOUND["Split", "test"] = {"test": "0.2", "train": "0.7"}


def changes(module, name, field):
    """Return {field: text} by which the default of the field becomes something else; whether it is accepted is open."""
    if (name, field) in BOUND:
        return [BOUND[name, field]]
    info = getattr(sys.modules[module], name).model_fields[field]
    return [{field: text} for text in islice(candidates(info), 6)]


def loaded(studies):
    settings = load_settings({"scale": "demo", "seeds": 1}, configs=ROOT / "configs")
    settings = settings.model_copy(update={"studies": tuple(studies)})
    return settings, variants.load_studies(settings)


def keys_after(settings, studies, monkeypatch):
    """(study, variant, stage) -> key."""
    monkeypatch.setattr(build, "load_studies", lambda *_: studies)
    plan = build.build_plan(settings, root=ROOT)
    return {
        (study.name, run.variant, stage): key
        for study in plan.content.studies
        for run in study.runs
        for stage, key in run.stages.items()
    }


def must_differ(before, after):
    """The (study, variant, stage) that read a value which differs, or are fed by one that does."""
    found = set()
    for name, study in before.items():
        for variant in study.variants:
            one = study.variants[variant].values
            two = after[name].variants[variant].values
            differs = {key for key in one.keys() | two.keys() if one.get(key) != two.get(key)}
            for stage, spec in study.stages.items():
                assets = {source.removeprefix("asset:").split(".")[0] for source in spec.inputs.values()}
                fed = any((name, variant, source) in found for source in spec.inputs.values())
                if fed or differs & ({*spec.reads} | assets):
                    found.add((name, variant, stage))
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    read = cache(load_yaml)
    for module in (study_file, variants):
        monkeypatch.setattr(module, "load_yaml", lambda path: deepcopy(read(path)))
    whole = variants.read_variants  # of each study the first eight, which are closed under parents, to save time
    monkeypatch.setattr(variants, "read_variants", lambda *words: whole(*words)[:8])
    for name in ("check_figures", "check_edges", "read_published"):  # which may name the rest
        monkeypatch.setattr(variants, name, lambda *_: None)
    for name in ("_find", "read_source"):  # no file of code changes here: a default does, in memory
        monkeypatch.setattr(fingerprint, name, cache(getattr(fingerprint, name)))
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("module", in_order())
def test_a_changed_default_gives_its_readers_new_keys_and_no_other(module, monkeypatch):
    settings, before = loaded(study for study, modules in MODULES.items() if module in modules)
    old, wrong, planned = keys_after(settings, before, monkeypatch), [], []
    for name, field, _ in defaults(module):
        for texts in changes(module, name, field):
            # Refused by a validator or an exclusion of a study: another one.
            with contextlib.suppress(ConfigError, ValueError), default(module, name, texts):
                _, after = loaded(before)
                if expected := must_differ(before, after):
                    new = keys_after(settings, after, monkeypatch)
                    wrong += [f"{name}.{field}"] if {k for k in new if new[k] != old[k]} != expected else []
                    planned.append((name, field))
                break  # no variant leaves this field as it is: then the test below is for it
    assert not wrong
    assert keys_after(*loaded(before), monkeypatch=monkeypatch) == old


@pytest.mark.parametrize("module", in_order())
def test_no_field_is_left_out_of_a_key(module):
    """Also of those that every variant states, so that no default of theirs can be seen above."""
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
    for module in in_order():
        for node in ast.walk(source_of(module)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert node.name in asked_by_the_plan, f"{module}.{node.name}"


def built(tree):
    """Names of the config models that a module makes."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in in_order():
            names |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    found = {name: getattr(sys.modules[module], original) for name, (module, original) in names.items()}
    return {name for name in called & found.keys() if isinstance(found[name], type)}


def test_no_stage_makes_a_config_model():
    """What it left out would be the default of today, and in no key: a stage has the values that it is given."""
    assert built(ast.parse("from trainers.policy.config import Clip as C\nC(low=0.1)")) == {"C"}
    made = {}
    for path in sorted((ROOT / "trainers").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in in_order() and (names := built(ast.parse(path.read_text()))):
            made[module] = names
    assert made == {}
