"""A stage that is a command: any program, started without a shell, whose files the tracker's readers read.

It writes to `output/` in the stage's folder, and its output goes to `log.txt`. Only exit status 0 is success.
If it is killed from outside, for lack of memory say, the stage leaves no status and is started again in the same
folder, where the program may find a checkpoint of its own.
"""

import contextlib
import errno
import json
import math
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

import yaml

from ablation.contract.atomic import write_json, write_text
from ablation.contract.code_files import FileCode, is_installed
from ablation.contract.command import OUTPUT, Filling, fill, value_at
from ablation.contract.reading import listed, one_line, read_json
from ablation.contract.status import ENDED
from ablation.runner.command_guard import MARK, adopt_orphans, end_all, marked, running
from ablation.runner.stage import Stage

GRACE = "10"  # seconds between SIGTERM and SIGKILL, unless ABLATION_GRACE names others
_GUARD = Path(__file__).with_name("command_guard.py")
_HOOK = str(Path(__file__).with_name("opened"))  # a folder of a sitecustomize that reports which files are opened
_FROM_OUTSIDE = {Signals.SIGKILL, Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP}
_TAIL = 1 << 16
_BAR = re.compile(r"(?<!\d)(\d{1,15})/(\d{1,15}) \[\d+:\d\d", re.ASCII)  # tqdm: ` 12/100 [00:03<00:25,  3.4it/s]`
_SHELL = 128  # a shell, and whoever speaks as one, adds the number of the signal
_ERROR = re.compile(  # a line of Python's tracebacks, with what the error says or without
    r"(?:\[\w+\]: *)?([\w.]*(Error|Exception|Interrupt|Exit|Warning): .*|[\w.]+(Error|Exception|Interrupt|Exit))"
)
_WRAPPERS = ("CalledProcessError", "ChildFailedError")  # of launchers, which say only that the program failed
_COLLECTED = "collected"


class NoResult(OSError):
    """The command or its reader was ended from outside, or the machine is misconfigured: not the stage's fault."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.ECANCELED, text)

    def __str__(self) -> str:
        return str(self.strerror)


class CommandPlan(NamedTuple):
    """A command as config.json holds it: words with placeholders, readers, key of the steps, minutes, and module."""

    words: list[str]
    collect: list[dict[str, Any]]
    reading: str
    steps: str | None
    time_limit: int | None
    reader: str


def run(
    stage: Stage, values: Mapping[str, Any], plan: CommandPlan, code: FileCode, *, held: Sequence[int], devices: int
) -> float:
    """Run the command and read what it leaves; return the seconds that it took in an earlier attempt, if it did.

    The output of a command that ended well is read again if `collect` has changed since, or if it could not be read. If
    the same readers still cannot read it, the command runs again.

    Args:
        stage: the stage.
        values: the configuration: what the stage reads.
        plan: the command.
        code: the files that count for its key.
        held: descriptors of the locks of folder and devices, which are kept until nothing of the command is left.
        devices: accelerators that are leased.

    Raises:
        RuntimeError: it failed, was too slow, or left nothing that the readers can read; the text says why.
        NoResult: it was ended from outside.
        Diverged: an abort rule trips on the metrics that it left.
    """
    output = (stage.out / OUTPUT).absolute()
    output.mkdir(exist_ok=True)
    _end_earlier(stage)
    ended = _ended_earlier(stage, output)
    if ended and not (ended["read"] and ended["reading"] == plan.reading):
        stage.log.info("the command has ended well before, and its files are read again")
        try:
            _read(stage, plan, output, ended, held)
            return float(ended["seconds"])
        except (RuntimeError, ValueError) as error:
            if ended["reading"] != plan.reading:
                raise
            stage.log.warning("%s: the command runs again", error)
    (stage.out / ENDED).unlink(missing_ok=True)
    before = _files(output)
    words = fill(plan.words, _filling(stage, values, output, devices))
    stage.log.info("starts %s", json.dumps(words))
    report, began = stage.out / "opened.txt", time.time()
    words, environment = _watched(words, report, code, os.environ)
    log = stage.out / "log.txt"
    begin = log.stat().st_size
    steps = value_at(values, plan.steps) if plan.steps else None
    total = steps if isinstance(steps, int) and steps > 0 else None

    def follow() -> None:
        # A momentarily full disk is not a reason to end a program that may not be writing at all.
        with contextlib.suppress(OSError):
            if bar := _newest_bar(_tail(log, begin), total):
                stage.progress(*bar)

    stage.progress(0, total or 1, "steps" if total else "commands")
    more = {MARK: _mark(stage), **environment}
    status = _run_guarded(words, held, follow, minutes=plan.time_limit, environment=more)
    if status != 0:
        raise _failure(status, _last_words(log, begin))
    after = _files(output)
    ended = {"seconds": round(time.time() - began, 3), "files": {path: known[1:] for path, known in after.items()}}
    ended["left"] = [path for path, known in after.items() if before.get(path) == known]
    _read(stage, plan, output, {**ended, "unnamed": _unnamed(report, code, began)}, held)
    return 0.0


def _ended_earlier(stage: Stage, output: Path) -> dict[str, Any]:
    """Return the note of an attempt whose command ended well, if its files are as it left them; else nothing."""
    try:
        ended: dict[str, Any] = read_json(stage.out / ENDED)
        same = ended["files"] == {path: list(known[1:]) for path, known in _files(output).items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return ended if same else {}


def _read(stage: Stage, plan: CommandPlan, output: Path, ended: Mapping[str, Any], held: Sequence[int]) -> None:
    """Let the readers read the command's output, and record whether they could."""
    (stage.out / "items.parquet").unlink(missing_ok=True)
    note = {**ended, "reading": plan.reading, "read": False}
    write_json(stage.out / ENDED, note)
    if plan.collect:
        _collect(stage, plan, output, ended["left"], held)
    write_json(stage.out / ENDED, {**note, "read": True})
    if plan.collect:
        _log(stage)
    if ended["unnamed"]:
        _warn(stage, ended["unnamed"])


def _files(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the state by which a later write is noticed: {path from the folder: inode, size, time}."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            seen = path.stat()
            if stat.S_ISREG(seen.st_mode):
                found[str(path.relative_to(folder))] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


def _watched(
    words: Sequence[str], report: Path, code: FileCode, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its additional environment, so that each Python below it writes to `report`.

    An audit hook reports what is opened, below shells and launchers too, but not by other programs and C libraries.
    """
    report.unlink(missing_ok=True)
    place = [report.absolute(), Path().absolute(), *(Path(folder).absolute() for folder in code.outside)]
    before = environment.get("PYTHONPATH")
    more = {
        "ABLATION_OPENED": "\n".join(map(str, place)),
        "PYTHONPATH": _HOOK + (os.pathsep + before if before else ""),
    }
    written = "PYTHONPATH="
    hooked = f"{written}{_HOOK}{os.pathsep}"
    return [word.replace(written, hooked, 1) if word.startswith(written) else word for word in words], more


def _unnamed(report: Path, code: FileCode, since: float) -> list[str]:
    """Return the opened files that are not code, relative to the project's folder, except files written since."""
    try:
        opened = {os.path.relpath(os.fsdecode(line)) for line in report.read_bytes().splitlines()}
    except OSError:  # nothing was
        return []
    report.unlink(missing_ok=True)
    known = {os.path.realpath(name) for name in code.files}
    return sorted(name for name in opened if _is_older(name, since) and os.path.realpath(name) not in known)


def _is_older(name: str, moment: float) -> bool:
    try:
        found = os.stat(name)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime < moment and not is_installed(Path(), name)


def _warn(stage: Stage, names: Sequence[str]) -> None:
    """Report which files belong in `code`: in the log, on the terminal, and as a metric, for a note of the tables."""
    stage.meter.say(f"opened {listed(names)}, and a change would not rerun anything: add to `code`")
    for name in names:
        stage.log.warning("opened %s, and a change to it would not rerun the stage: add it to `code`", name)
    last = stage.metrics.rows[-1][0] if stage.metrics.rows else 0
    stage.log_metrics(last, {"code/unnamed": len(names)})


def _mark(stage: Stage) -> str:
    return str(stage.out.resolve())


def _end_earlier(stage: Stage) -> None:
    """End processes left by an attempt whose runner and guard were killed together: we hold the folder."""
    folder = _mark(stage)
    if left := end_all(float(_grace()), lambda: marked(folder)):
        stage.log.warning("ended %d processes from an earlier attempt", left)
    if still := marked(folder):
        raise NoResult(f"processes from an earlier attempt cannot be ended: {', '.join(map(str, sorted(still)))}")


def _filling(stage: Stage, values: Mapping[str, Any], output: Path, devices: int) -> Filling:
    """Write the files that `{config}` names, and return what the placeholders become."""
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
    """Text that YAML 1.1 or 1.2 could take for a number is quoted; PyYAML itself knows 1.1 only."""


_Yaml.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if re.match(r"[-+.\d]", text) else None
    ),
)


def _left_by(folder: Path) -> Path:
    """Return where the stage of an input left its files: a command has a folder of its own there."""
    is_command = "command" in read_json(folder / "config.json")
    return (folder / OUTPUT if is_command else folder).absolute()


def _run_guarded(
    words: Sequence[str],
    held: Sequence[int],
    follow: Callable[[], None],
    *,
    minutes: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command below a guard; return its exit status, or minus the number of the signal that ended it.

    When it returns or raises, nothing of the command is left.
    """
    grace = _grace()
    adopt_orphans()
    watched, ours = os.pipe()
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), str(watched), grace, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process, which ends the command by ending
        pass_fds=[watched, *held],
        env={**os.environ, **(environment or {})},
    )
    with open(watched, "rb"), open(ours, "wb") as life:
        try:
            in_time = _ends_within(guard, minutes, follow)
        finally:
            life.close()
            code = guard.wait()
            if code == -Signals.SIGKILL:  # the guard itself, perhaps: what it watched over is ours now
                end_all(0, lambda: running(guard.pid))
    if not in_time and code < 0:
        raise RuntimeError(f"ended after its time_limit of {minutes} minutes")
    return code


def _ends_within(guard: subprocess.Popen[bytes], minutes: int | None, follow: Callable[[], None]) -> bool:
    """Wait for the end, or the time limit, and follow meanwhile; tell which came first."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    while True:
        try:
            guard.wait(timeout=1)
        except subprocess.TimeoutExpired:
            follow()
            if deadline is not None and time.monotonic() > deadline:
                return False
        else:
            return True


def _grace() -> str:
    """Return the seconds between SIGTERM and SIGKILL, as they are written."""
    written = os.environ.get("ABLATION_GRACE") or GRACE
    try:
        if 0 <= float(written) < math.inf:
            return written
    except ValueError:
        pass
    raise NoResult(f"ABLATION_GRACE = {written!r}: is not a number of seconds from 0 on; correct it, or unset it")


def _failure(code: int, words: str, who: str = "the command") -> Exception:
    """Return the error of an exit status that is not 0; `words` are the last that it said."""
    said = f": {words}" if words else ""
    number = -code if code < 0 else code - _SHELL
    if number in _FROM_OUTSIDE:
        return NoResult(f"{who} was ended by {Signals(number).name}{said}")
    if code < 0:
        name = Signals(number).name if number in {*Signals} else f"signal {number}"
        return RuntimeError(f"{who} was ended by {name}{said}")
    return RuntimeError(f"exit status {code}{said}")


def _last_words(log: Path, begin: int) -> str:
    """Return the log line that best says why the command failed: the last error, or else the last line."""
    text = _tail(log, begin).replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2].strip() for line in text.split("\n")]
    spoken = [line for line in lines if line]
    errors = [line for line in spoken if _ERROR.fullmatch(line) and not any(word in line for word in _WRAPPERS)]
    return one_line((errors or spoken or [""])[-1], 300)


def _tail(log: Path, begin: int) -> str:
    """Return the end of a log, from byte `begin` at most."""
    try:
        with log.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except OSError:  # the command removed it
        return ""


def _newest_bar(text: str, total: int | None) -> tuple[int, int] | None:
    """Return steps done and in all of the last progress bar; with a known total, of the last bar with that total."""
    bars = [(int(done), int(of)) for done, of in _BAR.findall(text)]
    fitting = [bar for bar in bars if total in (None, bar[1]) and bar[0] <= bar[1] > 0]
    return fitting[-1] if fitting else None


def _collect(stage: Stage, plan: CommandPlan, output: Path, left: Sequence[str], held: Sequence[int]) -> None:
    """Let the readers read the command's output, and log the items.

    left: files of an earlier attempt that this one did not touch.
    """
    import pyarrow.parquet as pq

    place = stage.out / _COLLECTED
    log = stage.out / "log.txt"
    begin = log.stat().st_size
    write_json(place / "left.json", left)  # an argument has 128 KiB at most
    words = [sys.executable, "-m", plan.reader, str(output), str(place), json.dumps(plan.collect)]
    code = _run_guarded(words, held, lambda: None)
    if code < 0:
        raise _failure(code, _last_words(log, begin), "the reader")
    if code != 0:
        said = _last_words(log, begin).removeprefix("error: ").replace(f"{output}/", "").replace(str(output), OUTPUT)
        raise RuntimeError(f"collect: {said}")
    items = pq.read_table(place / "items.parquet")
    if items.num_rows:
        columns = items.to_pydict()
        names = ("item", "subset", "protocol", "name", "value")
        clusters = dict(zip(columns["item"], columns["cluster"], strict=True))
        known = None if None in clusters.values() else clusters
        stage.save_items(zip(*(columns[name] for name in names), strict=True), known)


def _log(stage: Stage) -> None:
    import pyarrow.parquet as pq

    steps: dict[int, dict[str, float]] = {}
    for row in pq.read_table(stage.out / _COLLECTED / "metrics.parquet").to_pylist():
        steps.setdefault(row["step"], {})[row["name"]] = row["value"]
    for step in sorted(steps):
        stage.log_metrics(step, steps[step])
