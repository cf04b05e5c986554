"""Plans of the toy study, and a toy study of commands."""

import copy
import json

from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from tests.ablation.toy_study import STUDY

BASE = {"steps": 4, "lr": 1e-3, "task": {"name": "sums", "sizes": [1, 2], "extra": {}}, "clip": None, "eval": 8}
STAGES = {
    "train": {
        "command": "{python} 'my train.py' {config} --seed {seed} --out {output}",
        "code": ["my train.py", "src/"],
        "reads": ["steps", "lr", "task", "clip"],
        "seeded": True,
        "steps": "steps",
        "resources": {"gpu": 1},
    },
    "evaluate": {
        "command": ["{python}", "evaluate.py", "{input:train}/model", "--items={value:eval}"],
        "code": ["evaluate.py"],
        "inputs": {"train": "train"},
        "reads": ["eval"],
        "seeded": False,
        "collect": {"metrics": ".", "items": {"path": "scores/*.csv", "item": "id", "values": ["correct"]}},
    },
}
VARIANTS = {
    "base": {"why": "the start"},
    "v2": {"extends": "base", "why": "faster", "lr": 1},
    "v3": {"extends": "base", "why": "larger", "task": {"sizes": [3], "extra": {"any": 1}}, "clip": 0.2},
    "v4": {"extends": "base", "why": "other items", "eval": 9},
}


def make_commands(toy):
    """Make a toy study one of two commands, which `toy.declare` declares."""
    for path in toy.folder.glob("*.yaml"):
        path.unlink()
    for name in ("my train.py", "src/model.py", "src/settings.json", "lib/used.py", "lib/unused.py"):
        toy.code(name, "1\n")
    toy.code("evaluate.py", "import lib.used\n")
    toy.declare = lambda stages=STAGES, base=BASE, **changes: toy.study(
        stages=stages, base=base, **{"factors": {}, "exclusions": [], "health": [], "published": None, **changes}
    )
    kept = {key: value for key, value in STUDY.items() if key != "config"}
    write = toy.yaml
    toy.study = lambda **changes: write("studies/toy/_study.yaml", kept | changes)
    toy.declare()
    for name, variant in VARIANTS.items():
        toy.variant(name, variant)
    return toy


def changed(stage, **fields):
    """Return the stages, one of them changed; a field that is None is left out."""
    stages = copy.deepcopy(STAGES)
    stages[stage] = {key: value for key, value in (stages[stage] | fields).items() if value is not None}
    return stages


def build(toy, pool=None, **overrides):
    return build_plan(load_settings(overrides, configs=toy.configs), pool, root=toy.root)


def finish(stage, state="ok", **more):
    """Let a stage end; a state that starts with a brace is the content of its status."""
    stage.dir.mkdir(parents=True, exist_ok=True)
    stage.status.write_text(state if state.startswith("{") else json.dumps({"state": state, "key": stage.key, **more}))
