"""Reasons for stages to run: the changes since the last plan that was started, for `snakemake -n`."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ablation.config.dotted import leaves
from ablation.contract.errors import ConfigError
from ablation.contract.reading import listed, read_json
from ablation.contract.status import FAILED, StageState
from ablation.plan.plan import Address, Plan
from ablation.plan.plan_file import PlannedRun, read_plan
from ablation.plan.retry import States, pending

_MOST = 30  # lines


class _Reason(NamedTuple):
    """`{}` in the text is the variants that it is true of; without it, it is true of all."""

    id: str
    text: str


def reasons(plan: Plan, states: States) -> list[str]:
    """Return lines such as `12 x toy.train: train.py changed`; none where nothing has been started before."""
    try:
        before = read_plan(plan.file)
    except ConfigError:
        return []
    runs = {(study.name, run.variant, run.seed): run for study in before.studies for run in study.runs}
    folders = {(stage.id, stage.key): stage.dir for stage in before.stages}
    waiting = {(stage.id, stage.key) for stage in pending(plan, states)}
    found: dict[_Reason, dict[Address, str]] = {}
    for study in plan.content.studies:
        known = {variant for name, variant, _ in runs if name == study.name}
        for run in study.runs:
            old = runs.get((study.name, run.variant, run.seed))
            for stage, key in run.stages.items():
                address = f"{study.name}.{stage}", key
                if address not in waiting:
                    continue
                waiting.discard(address)
                if run.variant not in known:
                    text = f"new variant {run.variant}"
                elif old is None or stage not in old.stages:
                    text = f"new seed {run.seed}" if old is None else "a new stage"
                elif old.stages[stage] == key:
                    text = _again(states[address])
                else:
                    earlier = folders.get((address[0], old.stages[stage]))
                    text = _changes(_read(earlier), plan, address, old, run)
                found.setdefault(_Reason(address[0], text), {})[address] = run.variant
    lines = [
        f"{len(of)} x {reason.id}: {reason.text.replace('{}', listed(list(dict.fromkeys(of.values()))))}"
        for reason, of in found.items()
    ]
    return lines[:_MOST] + ([f"and {len(lines) - _MOST} more reasons"] if len(lines) > _MOST else [])


def _again(state: StageState) -> str:
    if state.reading is not None and state.state != "corrupt":
        return "`collect` changed, and its files are read again" if state.state == "ok" else "its files are read again"
    return {"corrupt": "its files are damaged"}.get(
        state.state, "it ended badly" if state.state in FAILED else "not run yet"
    )


def _read(folder: Any) -> Mapping[str, Any]:
    try:
        return dict(read_json(folder / "config.json"))
    except (OSError, ValueError, TypeError):
        return {}


def _changes(before: Mapping[str, Any], plan: Plan, address: Address, old: PlannedRun, run: PlannedRun) -> str:
    now = plan.configs[address]
    parts = [*_code(before, now), *_values(before, now)]
    if before.get("command", {}).get("words") != now.get("command", {}).get("words"):
        parts.append("its command changed")
    if before.get("abort_rules") != now["abort_rules"]:
        parts.append("its abort rules changed")
    study = address[0].partition(".")[0]
    above = [id.partition(".")[2] for id, _ in plan.upstream[address] if id.startswith(f"{study}.")]
    after = [stage for stage in above if old.stages.get(stage) != run.stages[stage]]
    if not before:
        return "it changed"
    return "; ".join(parts) or (f"after {', '.join(after)}" if after else "what it reads changed")


def _code(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changed files, or modules, of the code."""
    kind = "files" if "files" in now["code"] else "modules"
    one, other = before.get("code", {}).get(kind, {}), now["code"][kind]
    if not isinstance(one, dict):  # of a version that noted it otherwise
        yield "this version finds its code in another way"
    elif names := sorted(name for name in {*one, *other} if one.get(name) != other.get(name)):
        yield f"{listed(names)} changed"


def _values(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    one, other = dict(leaves(before.get("config", {}))), dict(leaves(now["config"]))
    for key in {**one, **other}:
        if (old := one.get(key)) != (new := other.get(key)):
            yield f"{key} of {{}} changed ({old} -> {new})"
