"""The Stage that a trainer is given, without the runner around it; every test that calls a trainer gets it here."""

import io
import logging

from ablation.contract.health import Monitor, parse_rules
from ablation.runner.runlog import Metrics, Progress
from trainers.stage import Stage


def make_stage(
    out,
    id,
    config,
    inputs,
    *,
    seed=0,
    devices=("cpu",),
    rules=(),
    sinks=(),
    label="test",
    terminal=None,
    stage_class=Stage,
):
    """A stage that writes into `out`, which is made; again with the same folder, it continues where that stands."""
    out.mkdir(parents=True, exist_ok=True)
    return stage_class(
        id=id,
        key="0" * 16,
        seed=seed,
        label=label,
        config=config,
        inputs=inputs,
        out=out,
        devices=list(devices),
        threads=1,
        log=logging.getLogger("test"),
        metrics=Metrics(out / "metrics.parquet", list(sinks)),
        monitor=Monitor(parse_rules(rules)),
        meter=Progress(out / "progress.json", f"{id}  {label}", terminal or io.StringIO()),
    )
