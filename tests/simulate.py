"""Simulated results: plan.json and stage folders with known truth, and no training.

    plan = simulate(tmp_path / "results")                               # one study, 4 variants, 2 seeds
    plan = simulate(results, [Study("debias", variant_tree=DEBIAS, seeds=5)])
    plan = simulate(results, [Study(f"s{i}", variants=20, seeds=5, steps=500, metrics=20) for i in range(5)])
    plan = simulate(results, [Study("s", distances={"v1": 0.05}, states={("v2", 1): "failed"})])

Every run has the stages prepare (shared, unseeded), train and evaluate, behind one shared model asset. `evaluate`
writes one 0/1 value named `hit` per item and subset, under the protocols `edited` and `unedited`, and the final metrics
`<protocol>/<subset>/{hit,distance}`, where distance is |share of hits - 0.5|; subset `mean` is the mean of distances.
`train` writes `train/m00`, `train/m01`, ... as decaying curves. The same arguments give the same bytes.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.config.dotted import nested
from ablation.contract.status import TO_COME, left_files

METRICS_DTYPES = {"step": "int64", "name": "str", "value": "float64"}
METRICS = pa.schema([("step", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
ITEMS = pa.schema([*((name, pa.string()) for name in ("item", "subset", "protocol", "name")), ("value", pa.float64())])
MODEL = {"model": {"kind": "model", "sources": [{"source": "random", "architecture": "llama"}]}}
STARTED = "2026-01-01T00:00:00+00:00"

# variant: (parent, {key: (from, to)}); the shape of a real study: chains, a fan, and comparisons of several factors.
VariantTree = Mapping[str, tuple[str | None, Mapping[str, tuple[Any, Any]]]]
DEBIAS: VariantTree = {
    "baseline": (None, {}),
    "v1": ("baseline", {"grpo.weight": (0.0, 0.2), "grpo.beta": (0.1, 0.05), "lr": (1e-5, 1e-6)}),
    "v2": ("v1", {"grpo.beta": (0.05, 0.1), "grpo.gamma": (0.5, 1.0), "grpo.weight": (0.2, 0.4)}),
    "v3": (
        "v2",
        {"grpo.weight": (0.4, 0.3), "lr": (1e-6, 1e-7), "early_stop.patience": (None, 5), "n_epochs": (10, 100)},
    ),
    "v4": ("v3", {"reward": ("directional", "balanced")}),
    "v5": ("v4", {"grpo.gamma": (1.0, 1.5)}),
    "v6": ("v4", {"grpo.beta": (0.1, 0.05)}),
    "v7": ("v4", {"max_grad_norm": (1.0, 0.5)}),
    "v8": ("v4", {"rcs.mode": ("off", "adaptive"), "rcs.alphas": (None, [0, 1, 2])}),
    "v8.1": ("v8", {"rcs.alphas": ([0, 1, 2], [0, 1.2, 2.5])}),
    "v9": ("v8", {"rcs.schedule": (None, [{"until": 30, "alpha": 1.0}, {"until": 100, "alpha": 1.2}])}),
    "v10": ("v8", {"mo_fairness_weight": (0.0, 0.2)}),
    "v8-earlystop": ("v8", {"early_stop.metric": ("edit/loss", "edit/ss_distance")}),
    "v8-earlystop-max": ("v8-earlystop", {"early_stop.over": ("mean", "max")}),
}


def default_tree(variants: int) -> VariantTree:
    """A root, then children that alternate between prolonging the chain and fanning out from every third variant."""
    variant_tree: dict[str, tuple[str | None, dict[str, tuple[Any, Any]]]] = {"v0": (None, {})}
    for index in range(1, variants):
        parent = f"v{index - 1 if index % 4 == 1 else (index - 1) // 4 * 4}"
        variant_tree[f"v{index}"] = (parent, {"objective.weight": (0.1 * (index - 1), 0.1 * index)})
    return variant_tree


@dataclass(frozen=True)
class Study:
    """One simulated study.

    `distances`: a variant's true |rate - 0.5| (default `distance`, so by default there is no true effect).
    `rho`: correlation of an item's latent ease between runs, in [0, 1); at 0 the items are unpaired.
    `seed_sd`: standard deviation of a seed's own shift of the rate.
    `states`: {(variant, seed): state} ends the *train* stage of that run as failed, diverged, running or missing; its
    evaluate stage is then blocked (or missing).
    """

    name: str = "toy"
    variants: int = 4
    variant_tree: VariantTree | None = None
    seeds: int = 2
    steps: int = 20
    metrics: int = 3
    items: Mapping[str, int] = field(default_factory=lambda: {"gender": 40, "race": 60})
    distance: float = 0.1
    distances: Mapping[str, float] = field(default_factory=dict)
    rho: float = 0.5
    seed_sd: float = 0.0
    states: Mapping[tuple[str, int], str] = field(default_factory=dict)
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def tree(self) -> VariantTree:
        """The declared variant tree, or the default one."""
        return self.variant_tree if self.variant_tree is not None else default_tree(self.variants)


def simulate(
    results: Path, studies: Sequence[Study] = (Study(),), *, scale: str = "simulated", digests: bool = False
) -> Path:
    """Write `results/plan.json` and all stage folders; return the path of the plan. digests: of what stages left."""
    stages: dict[str, dict[str, Any]] = {}
    entries = [_study(results, study, stages) for study in studies]
    plan = {"scale": scale, "results": str(results), "reports": str(results.parent / "reports")}
    for status in results.glob("stages/**/status.json") if digests else ():
        status.write_text(json.dumps(json.loads(status.read_text()) | left_files(status.parent)))
    path = results / "plan.json"
    results.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plan | {"studies": entries, "stages": list(stages.values())}, indent=1))
    return path


def stage_dir(plan: Path, study: str, variant: str, seed: int, stage: str) -> Path:
    """The folder of one stage of one run of a simulated plan."""
    content = json.loads(plan.read_text())
    [runs] = [entry["runs"] for entry in content["studies"] if entry["name"] == study]
    [key] = [run["stages"][stage] for run in runs if (run["variant"], run["seed"]) == (variant, seed)]
    [folder] = [entry["dir"] for entry in content["stages"] if entry["key"] == key]
    return Path(folder)


def write_status(folder: Path, stage: Mapping[str, Any], state: str, reason: str = "", wall_s: float = 12.5) -> None:
    """Write the terminal word of a stage, as a trainer does."""
    status = {"state": state, "reason": reason, "stage": stage["id"], "key": stage["key"], "seed": stage["seed"]}
    status |= {"started": STARTED, "ended": STARTED, "wall_s": wall_s, "attempt": 1, "device": "cpu"}
    (folder / "status.json").write_text(json.dumps(status))


@contextmanager
def editing(file: Path) -> Iterator[Any]:
    """The content of a JSON file, which is written back."""
    content = json.loads(file.read_text())
    yield content
    file.write_text(json.dumps(content))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A runner of the stage in this folder."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _study(results: Path, study: Study, stages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    tree = study.tree()
    add = partial(_stage, results, stages)
    asset = add(study="assets", name="assets", label="tiny model", seed=None, inputs={}, salt="tiny")
    once = f"{study.name} prepare"
    prepare = add(study=study.name, name="prepare", label=once, seed=None, inputs={"model": asset}, salt=study.name)
    for shared in (asset, prepare):
        _finish(shared, "ok")
        shared["variants"] = sorted({*shared["variants"], *(f"{study.name}/{variant}" for variant in tree)})
    runs = []
    for variant in tree:
        for run_seed in range(study.seeds):
            label = f"{variant} seed {run_seed}"
            of_run = partial(add, study=study.name, label=label, seed=run_seed, salt=variant)
            train = of_run(name="train", inputs={"prepare": prepare})
            evaluate = of_run(name="evaluate", inputs={"train": train})
            _run(study, variant, run_seed, train=train, evaluate=evaluate)
            keys = {"prepare": prepare["key"], "train": train["key"], "evaluate": evaluate["key"]}
            runs.append({"variant": variant, "seed": run_seed, "stages": keys})
    return _definition(study) | {"variants": _variants(study), "runs": runs, "last_stage": "evaluate"}


def _definition(study: Study) -> dict[str, Any]:
    subsets = [*study.items, "mean"]
    columns = [{"metric": f"edited/{s}/distance", "label": s, "published": s} for s in subsets]
    analysis = {"value": "hit", "protocol": "edited", "subsets": list(study.items), "direction": {"target": 0.5}}
    analysis |= {"margin": 0.02, "alpha": 0.05, "correction": "holm", "comparisons": "parent"}
    published = {"source": "a simulated paper", "metric": "distance", "target": 0.5, "columns": subsets, "rows": {}}
    published |= {"items": dict(study.items), "model": "gpt2-medium"}
    published["rows"] = {variant: [row.get(s) for s in subsets] for variant, row in study.published.items()}
    return {
        "name": study.name,
        "title": f"Simulated study {study.name}",
        "question": "Which variant has the smallest distance?",
        "source": "tests/simulate.py",
        "table": {"columns": columns, "reference": {"label": "unedited", "replace": {"edited": "unedited"}}},
        "curves": [{"metric": f"train/m{i:02d}", "label": f"metric {i}"} for i in range(min(study.metrics, 4))],
        "analysis": analysis,
        "analysis_digest": hashlib.sha256(json.dumps(analysis).encode()).hexdigest()[:16],
        "health": [],
        "published": published if study.published else None,
    }


def _variants(study: Study) -> list[dict[str, Any]]:
    variants, resolved = [], {}
    first: dict[str, Any] = {}
    for _, changes in study.tree().values():
        first |= {key: old for key, (old, _) in changes.items() if key not in first}
    for variant, (parent, changes) in study.tree().items():
        flat = resolved.get(parent, first) | {key: new for key, (_, new) in changes.items()}
        resolved[variant] = flat
        comparison = [{"key": k, "from": a, "to": b, "factor": k.split(".")[0]} for k, (a, b) in changes.items()]
        variants.append(
            {
                "name": variant,
                "parent": parent,
                "why": f"why {variant}",
                "file": f"{study.name}/{variant}.yaml",
                "gpu": None,
                "resolved": MODEL | nested(flat),
                "factors": sorted({change["factor"] for change in comparison}),
                "changes": comparison,
            }
        )
    return variants


def _stage(
    results: Path, stages: dict, *, study: str, name: str, label: str, seed: int | None, inputs: dict, salt: str
) -> dict[str, Any]:
    identity = study if study == name else f"{study}.{name}"
    key = hashlib.sha256(f"{identity}|{salt}|{seed}".encode()).hexdigest()[:16]
    folder = results / "stages" / (study if study == name else f"{study}/{name}") / key
    entry = {
        "id": identity,
        "study": study,
        "stage": name,
        "key": key,
        "seed": seed,
        "label": label,
        "entry": f"trainers.{identity}",
        "dir": str(folder),
        "variants": [f"{study}/{salt}"] if seed is not None else [],
        "inputs": {n: s["dir"] for n, s in inputs.items()},
        "resources": {"threads": 1, "mem_mb": 100, "runtime": 5, "gpu": 0},
    }
    return stages.setdefault(key, entry)


def _finish(stage: Mapping[str, Any], state: str, reason: str = "") -> Path:
    folder = Path(stage["dir"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"stage": stage["id"], "key": stage["key"], "config": {}}))
    if state == "running":
        began = datetime.fromisoformat(STARTED).timestamp()
        progress = {"done": 5, "total": 20, "unit": "steps", "started": began, "updated": began + 10}
        (folder / "progress.json").write_text(json.dumps(progress))
    elif state != "missing":
        (folder / "provenance.json").write_text(json.dumps({"git": {"commit": "c0ffee", "dirty": False}}))
        write_status(folder, stage, state, reason)
    return folder


def _run(study: Study, variant: str, seed: int, *, train: dict, evaluate: dict) -> None:
    state = study.states.get((variant, seed), "ok")
    reason = {"failed": "RuntimeError: simulated failure", "diverged": "train/m00 is not finite"}.get(state, "")
    folder = _finish(train, state, reason)
    if state not in TO_COME:
        curves = _curves(study, _generator(study.name, variant, seed))
        pq.write_table(curves, folder / "metrics.parquet")
    if state != "ok":
        _finish(evaluate, "missing" if state in TO_COME else "blocked", f"input train is {state}")
        return
    folder = _finish(evaluate, "ok")
    items, metrics = _evaluation(study, variant, seed)
    pq.write_table(items, folder / "items.parquet")
    pq.write_table(metrics, folder / "metrics.parquet")


def _curves(study: Study, rng: np.random.Generator) -> pa.Table:
    steps = np.arange(1, study.steps + 1)
    level, speed = rng.uniform(0.5, 1.5, study.metrics), rng.uniform(0.5, 2.0, study.metrics)
    decay = level * np.exp(-speed * steps[:, None] / study.steps)
    values = decay + rng.normal(0, 0.02, (study.steps, study.metrics))
    names = np.array([f"train/m{i:02d}" for i in range(study.metrics)], dtype=str)
    return pa.table([steps.repeat(study.metrics), np.tile(names, study.steps), values.ravel()], schema=METRICS)


def _evaluation(study: Study, variant: str, seed: int) -> tuple[pa.Table, pa.Table]:
    """Items: hit = (sqrt(rho) ease + sqrt(1 - rho) noise < Phi^-1(rate)), so that P(hit) = rate, items paired."""
    tables: list[pa.Table] = []
    metrics: dict[str, float] = {}
    for protocol in ("edited", "unedited"):
        edited = protocol == "edited"
        run = _generator(study.name, variant if edited else "unedited", seed if edited else -1)
        distance = study.distances.get(variant, study.distance) if edited else 0.2
        shift = run.normal(0, study.seed_sd) if edited else 0.0
        rate = min(max(0.5 + distance + shift, 1e-6), 1 - 1e-6)
        distances = []
        for subset, count in study.items.items():
            ease = _generator(study.name, subset, -2).standard_normal(count)
            latent = np.sqrt(study.rho) * ease + np.sqrt(1 - study.rho) * run.standard_normal(count)
            hits = (latent < NormalDist().inv_cdf(rate)).astype(float)
            names = [f"{subset}-{i:04d}" for i in range(count)]
            words = ([word] * count for word in (subset, protocol, "hit"))
            tables.append(pa.table([names, *words, hits], schema=ITEMS))
            distances.append(abs(hits.mean() - 0.5))
            metrics |= {f"{protocol}/{subset}/hit": hits.mean(), f"{protocol}/{subset}/distance": distances[-1]}
        metrics[f"{protocol}/mean/distance"] = float(np.mean(distances))
    final = pa.table([[0] * len(metrics), list(metrics), list(metrics.values())], schema=METRICS)
    return pa.concat_tables(tables), final


def _generator(*words: str | int) -> np.random.Generator:
    return np.random.default_rng(list(hashlib.sha256("|".join(map(str, (0, *words))).encode()).digest()))
