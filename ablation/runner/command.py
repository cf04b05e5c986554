"""Stages that are commands: any program, started without a shell, whose files a reader then reads.

The program writes files to `output/` in the stage's folder, and its standard output and error go to `log.txt`. It
succeeds only with exit status 0. If it is killed from outside, for example for lack of memory, the stage leaves no
status and starts again in the same folder, where the program may find its own checkpoint.
"""

import contextlib
import json
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from ablation.contract.atomic import write_json, write_text
from ablation.contract.command import OUTPUT, Filling, fill, value_at
from ablation.contract.display import one_line
from ablation.contract.errors import TrackerError
from ablation.contract.reading import read_json
from ablation.contract.status import ENDED
from ablation.runner.guarded import failure, last_words, run_guarded, tail
from ablation.runner.runlog import spare_pandas
from ablation.runner.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa

_BAR = re.compile(r"(?<!\d)(\d{1,15})/(\d{1,15}) \[\d+:\d\d", re.ASCII)  # tqdm: ` 12/100 [00:03<00:25,  3.4it/s]`


class CommandPlan(NamedTuple):
    """A command in config.json; `steps` is the config key of its number of steps, `time_limit` is in minutes."""

    words: list[str]
    collect: list[dict[str, Any]]
    reading: str
    steps: str | None
    time_limit: int | None
    reader: str


def run(stage: Stage, values: Mapping[str, Any], plan: CommandPlan, *, locks: Sequence[int], devices: int) -> float:
    """Run the command and read its files; return 0, or the seconds of an earlier run if only its files are read again.

    The files of a command that succeeded are read again if `collect` has changed since, or if they could not be read.
    If the same readers still cannot read them, the command runs again.

    Args:
        stage: the stage.
        values: the configuration that the stage reads.
        plan: the command.
        locks: descriptors of the locks of folder and devices, held until all processes of the command have ended.
        devices: number of leased accelerators.

    Raises:
        RuntimeError: the command failed, exceeded its time limit, or left no readable files; the text names the cause.
        NoResult: the command was ended from outside.
        Diverged: an abort rule trips on the command's metrics.
    """
    if {collected["reader"] for collected in plan.collect} <= {"items", "metrics"}:  # other readers use pandas
        spare_pandas()
    output = (stage.out / OUTPUT).absolute()
    output.mkdir(exist_ok=True)
    ended = _ended_earlier(stage, output)
    if ended and not (ended["read"] and ended["reading"] == plan.reading):
        stage.log.info("the command succeeded before, so only its files are read again")
        try:
            _read(stage, plan, output, ended)
            return float(ended["seconds"])
        except (RuntimeError, ValueError) as error:
            if ended["reading"] != plan.reading:
                raise
            stage.log.warning("%s; the command runs again", error)
    (stage.out / ENDED).unlink(missing_ok=True)
    before = _files(output)
    words = fill(plan.words, _filling(stage, values, output, devices))
    stage.log.info("starting the command %s", json.dumps(words))
    began, log = time.time(), stage.out / "log.txt"
    begin = log.stat().st_size
    steps = value_at(values, plan.steps) if plan.steps else None
    total = steps if isinstance(steps, int) and steps > 0 else None

    def follow() -> None:
        # A disk that is full for a moment is not a reason to end a program that may not be writing.
        with contextlib.suppress(OSError):
            if bar := _newest_bar(tail(log, begin), total):
                stage.progress(*bar)

    stage.progress(0, total or 1, "steps" if total else "commands")
    status = run_guarded(words, locks, follow, minutes=plan.time_limit)
    follow()
    if status != 0:
        raise failure(status, last_words(log, begin))
    after = _files(output)
    ended = {"seconds": round(time.time() - began, 3), "files": {path: stamp[1:] for path, stamp in after.items()}}
    ended["left"] = [path for path, stamp in after.items() if before.get(path) == stamp]
    _read(stage, plan, output, ended)
    return 0.0


def _ended_earlier(stage: Stage, output: Path) -> dict[str, Any]:
    """Return the record of an attempt whose command succeeded and whose files are unchanged, or {} if there is none."""
    try:
        ended: dict[str, Any] = read_json(stage.out / ENDED)
        same = ended["files"] == {path: list(stamp[1:]) for path, stamp in _files(output).items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return ended if same else {}


def _read(stage: Stage, plan: CommandPlan, output: Path, ended: Mapping[str, Any]) -> None:
    """Read the command's files, log their metrics, and record whether they could be read."""
    (stage.out / "items.parquet").unlink(missing_ok=True)
    note = {**ended, "reading": plan.reading, "read": False}
    write_json(stage.out / ENDED, note)
    steps: dict[int, dict[str, float]] = {}
    if plan.collect:
        for row in _collect(stage, plan, output, ended["left"]).to_pylist():
            steps.setdefault(row["step"], {})[row["name"]] = row["value"]
    write_json(stage.out / ENDED, {**note, "read": True})
    for step in sorted(steps):
        stage.log_metrics(step, steps[step])


def _files(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return {path: (inode, size, time in ns)} of the files below a folder; writing to a file changes its numbers."""
    stamps = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                stamps[str(path.relative_to(folder))] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return stamps


def _filling(stage: Stage, values: Mapping[str, Any], output: Path, devices: int) -> Filling:
    """Write the configuration files for `{config}`, and return the values of all placeholders of the command."""
    files = {kind: (stage.out / f"settings.{kind}").absolute() for kind in ("yaml", "json")}
    write_json(files["json"], values)
    write_text(files["yaml"], yaml.dump(dict(values), Dumper=_Yaml, sort_keys=False, allow_unicode=True))
    return Filling(
        config=files,
        values=values,
        seed=stage.seed,
        output=output,
        inputs={name: _left_by(folder) for name, folder in stage.inputs.items()},
        devices=max(1, devices),
        threads=stage.threads,
        python=sys.executable,
    )


class _Yaml(yaml.SafeDumper):
    """Dumper that quotes text that YAML 1.1 or 1.2 reads as a number; PyYAML considers only 1.1."""


_Yaml.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if re.match(r"[-+.\d]", text) else None
    ),
)


def _left_by(folder: Path) -> Path:
    """Return the folder that holds the files of an input stage: a subfolder if the stage is a command."""
    is_command = "command" in read_json(folder / "config.json")
    return (folder / OUTPUT if is_command else folder).absolute()


def _newest_bar(text: str, total: int | None) -> tuple[int, int] | None:
    """Return (steps done, all steps) of the text's last progress bar with `total` steps (None: any number), or None."""
    bars = [(int(done), int(steps)) for done, steps in _BAR.findall(text)]
    fitting = [bar for bar in bars if total in (None, bar[1]) and bar[0] <= bar[1] > 0]
    return fitting[-1] if fitting else None


def _collect(stage: Stage, plan: CommandPlan, output: Path, left: Sequence[str]) -> "pa.Table":
    """Read the command's files, save their items and return the metrics.

    left: files of an earlier attempt that this attempt did not change.
    """
    try:
        metrics, items = import_module(plan.reader).collect(output, plan.collect, left)
    except Exception as error:  # any error of a reader is a fault of the command's files
        problem = "; and ".join(map(str, (error, *getattr(error, "others", ()))))
        kind = "" if isinstance(error, TrackerError | OSError) else f"{type(error).__name__}: "
        shown = problem.replace(f"{output}/", "").replace(str(output), OUTPUT)
        raise RuntimeError(f"collect: {kind}{one_line(shown, 300)}") from error
    if items.num_rows:
        columns = items.to_pydict()
        names = ("item", "subset", "protocol", "name", "value")
        clusters = dict(zip(columns["item"], columns["cluster"], strict=True))
        item_clusters = None if None in clusters.values() else clusters
        stage.save_items(zip(*(columns[name] for name in names), strict=True), item_clusters)
    return metrics
