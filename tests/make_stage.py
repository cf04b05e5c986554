"""The Stage that a trainer is given, without the runner around it; every test that calls a trainer gets it here."""

import io
import logging
from importlib import import_module

from ablation.contract.health import Monitor, parse_rules
from ablation.contract.parts import load
from ablation.runner.runlog import Metrics, Progress
from trainers.running.stage import Stage


def part_names(config, stage):
    """Slot -> dotted name, as the plan has it."""
    models = [kind.__module__ for kind in type(config).__mro__ if kind.__module__.startswith("trainers.")]
    if not models or not models[0].endswith(".config"):
        return {}
    return import_module(models[0].replace(".config", ".parts")).parts(config, stage)


def parts_of(config, *stages):
    """The parts of a configuration at these stages; of two with a slot of one name, the first one's."""
    return load({slot: name for stage in reversed(stages) for slot, name in part_names(config, stage).items()})


def make_stage(
    out, id, config, inputs, *, seed=0, devices=("cpu",), rules=(), run=None, label="test", terminal=None, stages=()
):
    """A stage that writes into `out`, which is made; again with the same folder, it continues where that stands.

    stages: of the study, whose parts it has, the first one's before others; that of its `id` by default.
    """
    out.mkdir(parents=True, exist_ok=True)
    return Stage(
        id=id,
        key="0" * 16,
        seed=seed,
        label=label,
        config=config,
        parts=parts_of(config, *(stages or [id.rpartition(".")[2]])),
        inputs=inputs,
        out=out,
        devices=list(devices),
        threads=1,
        log=logging.getLogger("test"),
        metrics=Metrics(out / "metrics.parquet", run),
        monitor=Monitor(parse_rules(rules)),
        meter=Progress(out / "progress.json", f"{id}  {label}", terminal or io.StringIO()),
    )
