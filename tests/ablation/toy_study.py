"""A small study in a temporary folder: configurations, and the code that its stages name."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from ablation.contract.parts import Parts
from trainers.assets_config import Asset, PathSource


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reward(_Strict):
    kind: Literal["a", "b"] = "a"
    weight: float = Field(default=0.0, ge=0, le=1, description="Share of the reward.")
    levels: list[float] = [0.1, 0.2]


class ToyConfig(_Strict):
    data: Asset = Asset(kind="stereoset", sources=[PathSource(source="path", path="missing.jsonl")])
    size: int = Field(default=100, ge=1)
    lr: float = Field(default=1e-3, gt=0)
    patience: int | None = None
    bold: bool = False
    reward: Reward = Reward()


def parts(config: ToyConfig, stage: str) -> Parts:
    return {"reward": f"trainers.objectives.{config.reward.kind}.loss"} if stage == "train" else {}


LOSS = {"id": "loss", "stage": "train", "metric": "train/loss", "range": {"max": 5.0}, "severity": "abort"}
STAGES: dict[str, dict[str, Any]] = {
    "prepare": {"entry": "trainers.toy.prepare", "inputs": {"data": "asset:data"}, "reads": ["size"], "seeded": False},
    "train": {"entry": "trainers.toy.train", "inputs": {"prepare": "prepare"}, "seeded": True, "resources": {"gpu": 1}},
    "evaluate": {"entry": "trainers.toy.evaluate", "inputs": {"train": "train", "data": "asset:data"}, "seeded": True},
}
STAGES["train"]["reads"] = ["lr", "reward", "bold", "patience"]
STUDY: dict[str, Any] = {
    "title": "Toy",
    "question": "Does it work?",
    "source": "nobody",
    "config": "tests.ablation.toy_study:ToyConfig",
    "parts": "tests.ablation.toy_study:parts",
    "factors": {"reward": ["reward"]},
    "exclusions": [{"if": {"bold": True}, "forbid": {"reward.kind": "b"}, "because": "b is never bold"}],
    "stages": STAGES,
    "table": {"columns": [{"metric": "test/all/accuracy", "label": "accuracy", "published": "accuracy"}]},
    "curves": [{"metric": "train/loss", "label": "loss"}],
    "analysis": {"value": "correct", "protocol": "test", "subsets": ["all"], "direction": "max", "margin": 0.02},
    "published": "toy",
    "health": [LOSS | {"diagnosis": "too large", "remedy": "lower lr"}],
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {"why": "the start"},
    "v2": {"extends": "base", "why": "more", "reward": {"weight": 0.5}},
    "v10": {"extends": "v2", "why": "other", "reward": {"kind": "b"}, "lr": 0.01},
    "v3": {"extends": "v2", "why": "levels", "reward": {"levels": [0.3]}},
}

PUBLISHED: dict[str, Any] = {
    "source": "a table",
    "metric": "accuracy",
    "model": "none",
    "items": {"accuracy": 100},
    "columns": ["accuracy"],
    "rows": {"base": [0.5], "v2": [0.6]},
    "claims": [{"variant": "v2", "against": "base", "column": "accuracy", "percent": 20, "text": "better"}],
}

CODE = {
    "trainers/__init__.py": "",
    "trainers/assets.py": "def run(stage):\n    return None\n",
    "ablation/runner/lifetime.py": "def prepare_process(threads):\n    return None\n",
    "ablation/runner/stage.py": "def load_config(model, values, reads):\n    return None\n",
    "ablation/contract/health.py": "def parse_rules(rules):\n    return []\n",
    "trainers/harness.py": "def fix_randomness(seed):\n    return 0\n\n\nclass Stage:\n    seed = 0\n",
    "trainers/shared.py": "LIMIT = 3\n",
    "trainers/toy/__init__.py": '"""Toy."""\n',
    "trainers/toy/prepare.py": "from trainers import shared\n\ndef run(stage):\n    return shared.LIMIT\n",
    "trainers/toy/train.py": "from .helper import add\n\ndef run(stage):\n    return add(1, 2)\n",
    "trainers/toy/helper.py": "def add(a, b):\n    return a + b\n",
    "trainers/toy/evaluate.py": "def run(stage):\n    return 1\n",
    "trainers/objectives/__init__.py": "",
    "trainers/objectives/a.py": '"""A."""\n\n\ndef loss(x):\n    """Return x."""\n    return x  # the value\n',
    "trainers/objectives/b.py": "def loss(x):\n    return 2 * x\n",
}


class Toy:
    """Writes the study; tests change the dictionaries or the files before they load it."""

    def __init__(self, root: Path) -> None:
        self.root, self.configs = root, root / "configs"
        self.folder = self.configs / "studies" / "toy"
        for name, text in CODE.items():
            self.code(name, text)
        self.yaml("config.yaml", {"scale": "full", "studies": ["toy"], "gpus": 2, "results": str(root / "results")})
        self.yaml("scales/full.yaml", {"seeds": 2})
        self.yaml("published/toy.yaml", PUBLISHED)
        self.study()
        for name, variant in VARIANTS.items():
            self.variant(name, variant)

    def study(self, **changes: Any) -> Path:
        return self.yaml("studies/toy/_study.yaml", STUDY | changes)

    def variant(self, name: str, content: dict[str, Any]) -> Path:
        return self.yaml(f"studies/toy/{name}.yaml", content)

    def yaml(self, name: str, content: dict[str, Any]) -> Path:
        path = self.configs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    def code(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path
