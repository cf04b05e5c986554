"""Checks of a stage that is a command, beyond its form: its inputs and outputs must be named."""

from pathlib import Path

from pydantic import BaseModel

from ablation.config.formats import formats_of
from ablation.config.names import suggest
from ablation.config.study_schema import StageDefinition, StudyFile
from ablation.config.validation import check_key
from ablation.contract.command import Placeholder, placeholders
from ablation.contract.errors import ConfigError

READERS = tuple(formats_of("collect"))
"""Readers that `collect` may name."""

COLUMNS = {"items": ("item", "subset", "protocol", "name", "value", "cluster"), "metrics": ("step", "name", "value")}
"""Columns that a table may rename: `{items: {path: predictions.csv, item: id, values: [correct]}}`."""


def check_commands(written: StudyFile, model: type[BaseModel], file: Path) -> None:
    """Refuse a command that lacks what it needs, or that would not see the values in its key."""
    for name, stage in written.stages.items():
        if stage.command is not None:
            _check_command(stage, model, file, f"stages.{name}")
    last = next(reversed(written.stages))
    if written.stages[last].command is not None and not written.stages[last].collect:
        problem = "the last stage gives the study's results, and this command's files are not read"
        raise ConfigError(file, f"stages.{last}.collect", None, problem, f"name a reader: {', '.join(READERS)}")


def _check_command(stage: StageDefinition, model: type[BaseModel], file: Path, where: str) -> None:
    named = placeholders(stage.words)
    kinds = {placeholder.kind for placeholder in named}
    for placeholder in named:
        _check_name(placeholder, stage, model, file, f"{where}.command")
    if stage.seeded and "seed" not in kinds:
        problem = "the stage is seeded, and the command does not get {seed}: all seeds would give the same"
        remedy = "add {seed}, or set `seeded: false` (what reads a seeded stage has each seed's own run anyhow)"
        raise ConfigError(file, f"{where}.command", stage.command, problem, remedy)
    if "seed" in kinds and not stage.seeded:
        raise ConfigError(file, f"{where}.seeded", False, "the command gets {seed}", "set `seeded: true`")
    if stage.reads and not kinds & {"config", "overrides", "value"}:
        problem = f"the command gets none of what the stage reads ({', '.join(stage.reads)})"
        raise ConfigError(file, f"{where}.command", stage.command, problem, "add {config}, {overrides} or {value:KEY}")
    if kinds & {"config", "overrides"} and not stage.reads:
        problem = "is empty, so {config} and {overrides} are as well"
        raise ConfigError(file, f"{where}.reads", [], problem, "name the top-level keys that the command needs")
    if stage.steps is not None:
        _check_value(stage.steps, stage, model, file, f"{where}.steps")
    for collected in stage.collect:
        if collected.reader not in READERS:
            remedy = suggest(collected.reader, READERS)
            raise ConfigError(file, f"{where}.collect", collected.reader, "there is no such reader", remedy)
        known = COLUMNS.get(collected.reader, ())
        if odd := next((name for name in collected.columns if name not in known), "values" if collected.values else ""):
            if odd == "values" and known:
                continue
            problem = (
                f"the reader {collected.reader} has no such column" if known else "its files have no columns to name"
            )
            remedy = suggest(odd, (*known, "path", "values")) if known else f"write {{{collected.reader}: PLACE}}"
            raise ConfigError(file, f"{where}.collect.{collected.reader}", odd, problem, remedy)


def _check_name(
    placeholder: Placeholder, stage: StageDefinition, model: type[BaseModel], file: Path, where: str
) -> None:
    if placeholder.kind == "input" and placeholder.name not in stage.inputs:
        problem = "the stage has no such input"
        raise ConfigError(file, where, str(placeholder), problem, suggest(placeholder.name, stage.inputs))
    if placeholder.kind == "value":
        _check_value(placeholder.name, stage, model, file, where)


def _check_value(key: str, stage: StageDefinition, model: type[BaseModel], file: Path, where: str) -> None:
    check_key(model, key, file, where)
    top = key.partition(".")[0]
    if top not in stage.reads:
        problem = f"the stage does not read {top}"
        raise ConfigError(file, where, key, problem, f"add {top} to its `reads`: a change of it must run it again")
