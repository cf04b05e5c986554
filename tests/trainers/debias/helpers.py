"""Tiny models, items and stages for the tests of study `debias`."""

import json
from pathlib import Path

import torch

from tests.make_stage import make_stage
from trainers.debias import evaluate, prepare, train
from trainers.debias.config import DebiasConfig
from trainers.models.random_model import build_random_model
from trainers.running.stage import Stage

ADJECTIVES = ["clever", "rude", "kind", "lazy", "proud", "meek", "loud", "shy", "rich", "poor"]
NOUNS = ["rock", "spoon", "cloud", "lamp"]
SETTINGS = {
    "edit": {"modules": {"last": 2}, "n_edits": 6, "batch_size": 6},
    "editor": {"rank": 8, "n_blocks": 2, "batch_size": 64},
    "split": {"train": 0.4, "dev": 0.2, "test": 0.4},
    "domains": ["gender", "race"],
    "lr": 0.05,
    "meta_lr": 1e-3,
    "n_epochs": 3,
    "checkpoint_every": 1,
}

LATER = {"after": 0.5, "thresholds": [0.1, 0.2], "alphas": [3.0, 4.0, 5.0]}
FULL = {
    "grpo": {"weight": 0.3, "reward": "balanced", "beta": 0.1, "gamma": 1.0},
    "rcs": {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.5, 1.0, 2.0], "schedule": [LATER]},
    "mo_fairness_weight": 0.2,
    "max_grad_norm": 0.5,
    "early_stop": {"key": "edit/loss", "patience": 5},
}


def stereoset_rows(per_term: int = 4, terms: int = 5) -> list[dict]:
    """Made-up items in the flat layout; sentences of different lengths."""
    rows = []
    for domain in ("gender", "race"):
        for t in range(terms):
            for i in range(per_term):
                n = len(rows)
                context = f"The {domain} term{t} who came {'late ' * (i % 3)}was BLANK."
                words = ADJECTIVES[n % 10], ADJECTIVES[(3 * n + 1) % 10], NOUNS[n % 4]
                stereo, anti, unrelated = (context.replace("BLANK", word) for word in words)
                row = {"type": "intrasentence", "target": f"term{t}", "bias_type": domain, "context": context}
                rows.append(row | {"stereotype": stereo, "anti-stereotype": anti + " Yes", "unrelated": unrelated})
    return rows


def debias_stage(tmp: Path, name: str, config: object, inputs: dict[str, Path], seed: int | None = 0) -> Stage:
    """Build a stage that writes below `tmp`; calling it again continues where the folder stands."""
    return make_stage(tmp / name, f"debias.{name}", config, inputs, seed=seed, stages=[name, "train"])


def write_assets(tmp: Path, architecture: str) -> dict[str, Path]:
    """A random model and made-up items, laid out as finished asset stages."""
    size = {"hidden": 32, "layers": 4, "heads": 2, "vocab": 260, "positions": 256}
    model, tokenizer = build_random_model(architecture, **size, seed=1)
    (tmp / "model" / "files").mkdir(parents=True)
    (tmp / "data" / "files").mkdir(parents=True)
    model.save_pretrained(tmp / "model" / "files")
    tokenizer.save_pretrained(tmp / "model" / "files")
    lines = "".join(json.dumps(row) + "\n" for row in stereoset_rows())
    (tmp / "data" / "files" / "items.jsonl").write_text(lines)
    return {"model": tmp / "model", "data": tmp / "data"}


def config(**changes: object) -> DebiasConfig:
    """The small settings with some keys replaced."""
    return DebiasConfig(**{**SETTINGS, **changes})


def run_prepare(tmp: Path, architecture: str, settings: DebiasConfig | None = None) -> dict[str, Path]:
    """Assets and the prepare stage; returns the inputs of train."""
    torch.use_deterministic_algorithms(True)
    assets = write_assets(tmp, architecture)
    prepare.run(debias_stage(tmp, "prepare", settings or config(), assets))
    return {"model": assets["model"], "prepare": tmp / "prepare"}


def run_train(tmp: Path, inputs: dict[str, Path], settings: DebiasConfig, seed: int = 0, name: str = "train") -> Stage:
    """The train stage, with its metrics written."""
    stage = debias_stage(tmp, name, settings, inputs, seed)
    try:
        train.run(stage)
    finally:
        stage.metrics.close()
    return stage


def run_evaluate(tmp: Path, inputs: dict[str, Path], settings: DebiasConfig, train_stage: Stage) -> Stage:
    """The evaluate stage."""
    stage = debias_stage(tmp, "evaluate", settings, {**inputs, "train": train_stage.out})
    evaluate.run(stage)
    stage.metrics.close()
    return stage
