"""Find the step of the model that a run kept; some settings keep the best model instead of the last."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ablation.config import dotted
from ablation.config.names import known_direction
from ablation.readers.run import ImportedRun, Problem

# Settings that keep the best model: transformers; transformers and mmengine; Keras.
_KEEP = ("load_best_model_at_end", "save_best", "save_best_only", "restore_best_weights")
_METRIC = ("metric_for_best_model", "save_best", "best_metric", "monitor", "early_stopping_metric")
_DIRECTION = ("greater_is_better", "mode", "rule")
_MAY_KEEP = re.compile(r"early_?stopping|best_metric$|best_model_checkpoint$")
_OFF = (None, False, "", 0, "no", "none", "None", "False", "false")
_UNCLEAR = "with these settings ({}), the run may have kept an earlier model, of an unknown step; the last step is used"


def kept_step(run: ImportedRun, problem: Problem, remedy: str) -> int | None:
    """Return the step of the model that a run kept, from its source or its settings; None for the last step.

    If the settings leave open which model was kept, `problem` gets a line that ends with the remedy.
    """
    if run.kept is not None:
        return run.kept
    step, unclear = _by_settings(run.config, run.metrics)
    if unclear:
        problem(f"{_UNCLEAR.format(unclear)}; {remedy}")
    return step


def _by_settings(config: Mapping[str, Any], metrics: pa.Table) -> tuple[int | None, str]:
    """Return the step of the best evaluation if the configuration keeps the model of that step, else None.

    Also return the names of the settings that leave open which model was kept; "" if none do.
    """
    settings = {key.rpartition(".")[2].lower(): value for key, value in dotted.leaves(config)}
    keeps = [name for name in _KEEP if settings.get(name) not in _OFF]
    keeps += ["save_strategy"] if settings.get("save_strategy") == "best" else []
    if not keeps:
        off = "load_best_model_at_end" in settings
        return None, "" if off else ", ".join(
            sorted(n for n, v in settings.items() if _MAY_KEEP.search(n) and v not in _OFF)
        )
    metric = next(
        (settings[name] for name in _METRIC if isinstance(settings.get(name), str) and settings[name] not in _OFF), None
    )
    metric = "loss" if metric is None and "load_best_model_at_end" in keeps else metric
    larger = _larger(settings, metric) if metric else None
    bare = (metric or "").removeprefix("eval_")
    names = [f"eval_{bare}", f"eval/{bare}", metric]
    for name in names if larger is not None else ():
        rows = metrics.filter(pc.and_(pc.equal(metrics["name"], name), pc.is_finite(metrics["value"])))
        if rows.num_rows:
            return _best(rows["step"].to_numpy(), rows["value"].to_numpy(), settings, larger=bool(larger)), ""
    return None, ", ".join(keeps)


def _larger(settings: Mapping[str, Any], metric: str) -> bool | None:
    """Return whether larger values are better; None if neither the settings nor the metric's name shows this."""
    direction = next((settings[name] for name in _DIRECTION if settings.get(name) not in (None, "", "auto")), None)
    if direction is not None:
        return direction in (True, "True", "true", "max", "greater")
    if "load_best_model_at_end" in settings:  # the rule of transformers.TrainingArguments
        return not metric.endswith("loss")
    known = known_direction(metric)
    return None if known is None else known == "max"


def _best(steps: Any, values: Any, settings: Mapping[str, Any], *, larger: bool) -> int:
    every = settings.get("save_steps")
    if settings.get("save_strategy") == "steps" and isinstance(every, int) and every > 1:
        saved = steps % every == 0  # a model that was not saved cannot be loaded
        steps, values = (steps[saved], values[saved]) if saved.any() else (steps, values)
    return int(steps[np.argmax(values if larger else -values)])
