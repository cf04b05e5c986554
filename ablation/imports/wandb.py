"""Reader of Weights & Biases: offline runs (`wandb/offline-run-*/run-*.wandb`) and exported CSV.

The files of one run, which a resumed run has several of, are one run. Where a later file begins again at a step that an
earlier one had passed, it replaces what was logged from that step on. Metrics are counted by the step metric that
`define_metric` gave them, where its values are whole, else by W&B's own step. A metric that only the summary of an
ended run has is at the last step. Left out: system metrics, W&B's own `_runtime` and `_timestamp`, tables, histograms,
media and text.
"""

from collections.abc import Iterator
from pathlib import Path

from ablation.contract.errors import ConfigError
from ablation.contract.reading import one_line, regular
from ablation.imports.run import ImportedRun, Problem, metric_table
from ablation.imports.wandb_csv import read_csv
from ablation.imports.wandb_log import HEADER, is_wandb
from ablation.imports.wandb_run import Head, Run, read_head
from ablation.imports.words import iso_time

_REMEDY = "name a run-*.wandb, a folder wandb/, one above it, or a CSV that W&B exported"
_DEPTHS = ("*.wandb", "*/*.wandb", "*/*/*.wandb", "*/*/*/*.wandb")  # run folder, wandb/, folder above, folder of these


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of a `.wandb` file, of all such files in a folder, or of a CSV, by the time of their start.

    Raises:
        ConfigError: there is nothing of W&B's.
    """
    try:
        if path.is_dir():
            # `latest-run` is a link to another folder, which is not read twice.
            files = sorted({file.resolve() for depth in _DEPTHS for file in path.glob(depth)})
        else:
            if path.suffix.lower() == ".csv":
                yield from read_csv(path, problem)
                return
            files = [path]
            if not is_wandb(path) and not _just_begun(path):
                raise ConfigError(path, "", None, "is no file of W&B's", _REMEDY)
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read: {one_line(error, 200)}", _REMEDY) from None
    if not files:
        raise ConfigError(path, "", None, "holds no file of W&B's", _REMEDY)
    yield from _read_files(files, problem)


def _just_begun(path: Path) -> bool:
    """Whether a file has W&B's name and no more than the start of its first bytes."""
    with regular(path).open("rb") as file:
        return path.suffix == ".wandb" and HEADER.startswith(file.read(len(HEADER)))


def _read_files(files: list[Path], problem: Problem) -> Iterator[ImportedRun]:
    heads: dict[tuple[str, str], list[Head]] = {}
    for file in files:
        try:
            if not is_wandb(file):
                raise OSError("it has no beginning of a file of W&B's")
            head = read_head(file)
        except OSError as error:
            problem(f"{file}: cannot be read: {one_line(error, 200)}")
            continue
        heads.setdefault((head.project, head.run), []).append(head)
    ids = [run for _, run in heads]
    ordered = sorted(heads.items(), key=lambda item: (min(head.started for head in item[1]), item[0]))
    for (project, run), parts in ordered:
        parts.sort(key=lambda head: (head.started, str(head.file)))
        yield _imported(f"{project}/{run}" if ids.count(run) > 1 else run, parts, problem)


def _imported(key: str, parts: list[Head], problem: Problem) -> ImportedRun:
    whole = Run(problem)
    for head in parts:
        try:
            whole.add(head.file)
        except OSError as error:
            problem(f"{head.file}: cannot be read to its end: {one_line(error, 200)}")
    source = parts[0].file  # which stays when the run is resumed: a later import finds the run by it
    started = next((head.started for head in parts if head.started), None)
    return ImportedRun(
        source=source,
        id=key,
        name=whole.name or parts[0].run,
        config=whole.config,
        seed=None,
        state=whole.state,
        started=iso_time(started),
        metrics=metric_table(whole.points(f"run {one_line(key, 80)}")),
        items=None,
    )
