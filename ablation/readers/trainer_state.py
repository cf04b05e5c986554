"""Reader of runs of the Hugging Face Trainer: `trainer_state.json` and TRL's `completions/completions_*.parquet`.

A run is an output folder. Its history is in the folder itself (`trainer.save_state()`) and in each checkpoint. A later
history contains the earlier ones, so the longest readable one counts. If one history does not continue the other,
because the folder was reused, the newer file counts. Rows of training and evaluation and a final row of totals are in
one list; each number keeps its name. Settings come from a JSON or YAML file in the folder (`SETTINGS`) or, if there is
none, from `training_args.bin` there or in the newest checkpoint.
"""

import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from pickletools import genops
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ablation.config import dotted
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.contract.reading import read_bytes, read_text, regular
from ablation.readers.run import (
    ImportedRun,
    ItemsLost,
    Numbered,
    Problem,
    as_number,
    as_step,
    item_table,
    metric_table,
    name_below,
    read_settings,
)
from ablation.readers.tabular import parquet_batches
from ablation.readers.walk import files_below, files_of

STATE = "trainer_state.json"
SETTINGS = ("training_args.json", "args.json", "training_args.yaml", "args.yaml", ".hydra/config.yaml", "config.yaml")
_KEPT = ("train_batch_size", "num_train_epochs", "max_steps")
_MAX_BYTES = 1 << 30
PICKLED = "training_args.bin"
_KNOWN = ("transformers", "trl", "accelerate", "torch")
_MAX_PICKLE = 4 << 20  # real ones have 5 KB
_MAX_WORDS = 50_000  # of a pickle
_MAX_VALUES = 10_000
_MAX_TUPLES = 24  # nested, and shared by their places, n of them take 2**n steps to hash as a key of a dictionary
_CHARACTERS = 100  # that count as one value
_OF_THE_MACHINE = ("distributed_state", "deepspeed_plugin", "fsdp_plugin_args", "mixed_precision")


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of the Trainer at or below a path. Raises ConfigError if no run is found."""
    root = path if path.is_dir() else path.parent
    folders: dict[Path, list[Path]] = {}
    for state in files_of("trainer_state", path, problem) if path.is_dir() or path.name == STATE else ():
        folder = state.parent
        folders.setdefault(folder.parent if folder.name.startswith("checkpoint-") else folder, []).append(state)
    if not folders:
        remedy = "name an output folder of the Trainer, or a folder above it"
        raise ConfigError(path, "", None, f"holds no {STATE}", remedy)
    for folder, states in folders.items():
        if (run := _run(root, folder, states, problem)) is not None:
            yield run


def _run(root: Path, folder: Path, states: list[Path], problem: Problem) -> ImportedRun | None:
    best: dict[str, Any] = {}
    newest_last = sorted(states, key=lambda path: path.stat().st_mtime_ns)
    for state in newest_last:
        content = _read_state(state, problem)
        if content is None or (best and _begins_with(best, content) and _reach(content) < _reach(best)):
            continue
        if best and not _begins_with(content, best):
            problem(f"{state}: does not continue an older {STATE} of the run; this file is used, because it is newer")
        best = content
    if not best:
        return None
    metrics = metric_table(_logged(best, folder, problem))
    settings = read_settings([folder / name for name in SETTINGS], problem)
    pickled = [place / PICKLED for place in (folder, *(state.parent for state in reversed(newest_last)))]
    if not settings and (path := next((path for path in pickled if path.is_file()), None)):
        settings = _training_args(path, problem)
    trial = best.get("trial_params")
    config = {key: best[key] for key in _KEPT if best.get(key) is not None}
    config |= trial if isinstance(trial, dict) else {}
    return ImportedRun(
        source=folder,
        id=STATE,
        name=name_below(root, folder),
        config=config | settings,
        state="finished" if _has_ended(best) else "running",
        metrics=metrics,
        kept=_kept(best, settings, folder, problem),
        items=_completions(folder, problem),
    )


def _kept(state: dict[str, Any], settings: dict[str, Any], folder: Path, problem: Problem) -> int | None:
    """Return the step of the best model, or None if the last model was kept or no best step is recorded."""
    loads = settings.get("load_best_model_at_end")
    checkpoint = re.search(r"checkpoint-(\d+)/?$", str(state.get("best_model_checkpoint")))
    step = int(checkpoint[1]) if checkpoint else as_step(state.get("best_global_step"))
    if step is None or (loads is False and settings.get("save_strategy") != "best"):
        return None
    if loads is None:
        what = f"step {step} is used, because it is recorded as the best, but no settings state whether its"
        problem(f"{folder / STATE}: {what} model was kept; for the last step pass --at last")
    return step


def _reach(state: dict[str, Any]) -> tuple[float, int]:
    return as_number(state.get("global_step")) or 0.0, len(state["log_history"])


def _begins_with(state: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(state["log_history"][: len(other["log_history"])] == other["log_history"])


def _has_ended(state: dict[str, Any]) -> bool:
    """Return whether the run has ended: it took all steps, was stopped by a callback, or logged its totals."""
    step, last = as_number(state.get("global_step")), as_number(state.get("max_steps"))
    if step is not None and last is not None and 0 < last <= step:
        return True
    stopped = dotted.get(state, "stateful_callbacks.TrainerControl.args.should_training_stop", False)
    steps = [as_step(row.get("step")) or 0 for row in state["log_history"]]
    totals = [at for at, row in zip(steps, state["log_history"], strict=True) if "train_runtime" in row]
    return stopped is True or (bool(totals) and totals[-1] >= max(steps))  # a script may evaluate after them


def _logged(state: dict[str, Any], folder: Path, problem: Problem) -> Iterator[tuple[int, str, float]]:
    without = 0
    for row in state["log_history"]:
        step = as_step(row.get("step"))
        if step is None:
            without += 1
            continue
        for name, value in row.items():
            if name != "step" and (number := as_number(value)) is not None:
                yield step, name, number
    if without:
        problem(f"{folder / STATE}: rows of log_history without a step are left out ({without})")


def _read_state(path: Path, problem: Problem) -> dict[str, Any] | None:
    """Return the content of a state file, or the complete rows of the history if it was cut off; None if unreadable."""
    try:
        text = read_text(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        problem(f"{path}: cannot be read ({one_line(error, 200)}), so it is left out")
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        rows = _complete_rows(text)
        problem(f"{path}: is cut off or damaged; {counted(len(rows), 'row')} of log_history can be read")
        content = {"log_history": rows, "global_step": max((as_step(row.get("step")) or 0 for row in rows), default=0)}
        return content if rows else None
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        problem(f"{path}: has no valid log_history, so it is left out")
        return None
    return content


def _complete_rows(text: str) -> list[dict[str, Any]]:
    begin = re.search(r'"log_history"\s*:\s*\[', text)
    decoder, between, rows = json.JSONDecoder(), re.compile(r"[, \t\r\n]*"), []
    place = begin.end() if begin else len(text)
    while gap := between.match(text, place):
        try:
            row, place = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows


def _completions(folder: Path, problem: Problem) -> pa.Table | None:
    """Return TRL's completions as items: one item for each prompt and repetition, in one subset for each step.

    Each reward is a value. The file of a step holds the samples that were last drawn before it, for training or for
    evaluation.
    """
    tables: list[pa.Table] = []
    place = folder / "completions"
    for path in files_below(place, ["completions_*.parquet"], problem, depth=1) if place.is_dir() else ():
        try:
            tables.append(item_table(_completion_rows(path)))
        except (ConfigError, OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:  # TypeError: bytes
            problem(ItemsLost(f"{path}: cannot be read ({one_line(error, 200)}), so it is left out"))
    return pa.concat_tables(tables) if any(table.num_rows for table in tables) else None


def _completion_rows(path: Path) -> list[tuple[str, str, str, str, float]]:
    rows = []
    with pq.ParquetFile(regular(path)) as file:
        schema = file.schema_arrow
        if missing := {"step", "prompt"} - set(schema.names):
            raise ValueError(f"column {min(missing)} is missing")
        values = [
            field.name
            for field in schema
            if field.name != "step" and (pa.types.is_floating(field.type) or pa.types.is_integer(field.type))
        ]
        numbered = Numbered()
        for batch in parquet_batches(path, ["step", "prompt", *values]):
            for row in batch.to_pylist():
                item = numbered.name(row["prompt"], str(row["step"]))
                subset = f"step {row['step']}"
                rows += [
                    (item, subset, "completions", name, float(row[name])) for name in values if row[name] is not None
                ]
    return rows


class _Value:
    _args: tuple[Any, ...] = ()

    def __init__(self, *args: Any) -> None:
        self._args = args

    def fields(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if _is_setting(name)}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in _KNOWN:
            raise pickle.UnpicklingError(
                f"the file names {module}.{name}, which is not in transformers, trl, accelerate or torch"
            )
        return type(name, (_Value,), {})  # a new one: whatever the file does to it stays there


def _training_args(path: Path, problem: Problem) -> dict[str, Any]:
    """Return the settings in `training_args.bin`, named as in `TrainingArguments.to_dict`; {} if the file is refused.

    Trainers of transformers and TRL pickle them with `torch.save`. Nothing that the file names is imported or called: a
    `_Value`, which keeps the arguments, replaces each object of the known libraries. A file that names anything else,
    for example to run a command, is refused and reported.
    """
    try:
        with zipfile.ZipFile(BytesIO(read_bytes(path, _MAX_PICKLE))) as archive:
            [member] = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
            if member.file_size > _MAX_PICKLE:
                raise ValueError("the file is too long")
            content = archive.read(member)
        opcodes = [(opcode.name, place) for opcode, place, _ in islice(genops(content), _MAX_WORDS + 1)]
        if len(opcodes) > _MAX_WORDS:
            raise ValueError("the file is too long")
        if any(name == "FROZENSET" for name, _ in opcodes):  # nested, likewise
            raise ValueError("the file holds a frozen set")
        # The memo is a list: a huge index, which no file of this length needs, would take all memory.
        if any("PUT" in name and (place or 0) > len(content) for name, place in opcodes):
            raise ValueError("the file is damaged")
        if sum(name.startswith("TUPLE") for name, _ in opcodes) > _MAX_TUPLES:
            raise ValueError(f"the file holds more than {_MAX_TUPLES} tuples")
        made = _Unpickler(BytesIO(content)).load()
        settings = _plain(made) if isinstance(made, _Value) else {}
        if not isinstance(settings, dict) or not settings:
            raise ValueError("the file holds no settings")
        return settings
    except Exception as error:  # whatever a damaged pickle can raise
        why = one_line(error, 200) or type(error).__name__
        remedy = 'Path(trainer.args.output_dir, "training_args.json").write_text(trainer.args.to_json_string())'
        what = f"is not read, because {why}; to import the settings, write them to a file with"
        problem(f"{path}: {what} {remedy}")
        return {}


def _is_setting(name: Any) -> bool:
    """Return whether a key names a training setting, as opposed to a secret or a setting of the machine."""
    secret = not isinstance(name, str) or name.startswith("_") or name.endswith("_token")
    return not secret and name not in _OF_THE_MACHINE


def _plain(made: _Value) -> Any:
    """Return the object as JSON values.

    Raises ValueError for values of other types, or for too many: a short file can refer to one list a billion times.
    """
    left = _MAX_VALUES

    def plain(value: Any) -> Any:
        nonlocal left
        left -= 1 + (len(value) // _CHARACTERS if isinstance(value, str) else 0)
        if left < 0:
            raise ValueError("the file holds too many values or too long texts")
        if isinstance(value, type):  # `torch.bfloat16`
            return value.__name__
        if isinstance(value, _Value):  # a record, or one of an enum
            value = value.fields() or (value._args[0] if len(value._args) == 1 else {})
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value):
                raise ValueError("the file holds a key that is not text")
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple | set):
            return [plain(item) for item in value]
        if isinstance(value, int) and value.bit_length() > 64:
            raise ValueError("the file holds a number of more than 64 bits")
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise ValueError(f"the file holds a value of type {type(value).__name__}")

    return plain(made)
