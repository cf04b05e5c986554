"""Find the reader of an evaluation file, and read evaluations as imported runs.

    reader_of(path) -> module            for `compare`, which calls the module's `sheets(path, wanted)`
    read(path, problem) -> runs          for `import`, which adds the items to the metrics that a run logged

An imported run is a folder with samples of lm-evaluation-harness, a folder with Inspect's logs of one model, one seed
of a table with seeds, or any other file. It is named by its path. Its items have the protocol `evaluation`, the task
as subset, and a value for each metric.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from ablation.config.formats import FORMATS, formats_of
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.readers import harbor, inspect_ai, lm_eval, objects, swe_bench, table
from ablation.readers.run import EVALUATION, ImportedRun, Problem, name_below, shortened
from ablation.readers.seeds import seed_in
from ablation.readers.sheet import Sheet, Wanted, sheet_items
from ablation.readers.tabular import first_row
from ablation.readers.walk import files_below

READERS: tuple[ModuleType, ...] = tuple(import_module(f"ablation.readers.{name}") for name in formats_of("compare"))
_WITH_PARTS = (swe_bench, harbor)  # an evaluation may be a folder with a file for each item
_FOLDERS = (*_WITH_PARTS, objects)
_TABLES = FORMATS["table"].patterns
_IN_FOLDERS = tuple(
    dict.fromkeys(p for name, of in formats_of("compare").items() if name != "table" for p in of.patterns)
)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")
_EXPLAINS = re.compile(
    r"(.*_)?results?(_.*)?\.json|.*_\d{4}-\d\d-\d\dT[\d.-]+\.json|(logs|eval-set|infra_errors)\.json"
)
_MEANS = re.compile(r"(.*_)?results_.*\.json|.*_\d{4}-\d\d-\d\dT[\d.-]+\.json")
_Sheets = dict[tuple[str, str], Sheet]  # of one run, by subset and value
_LOGS = FORMATS["lm_eval"].patterns + FORMATS["inspect_ai"].patterns


def whole_of(path: Path) -> Path:
    """Return the folder of the evaluation that a file is a part of; for any other path, return the path itself."""
    return next((reader.whole(path) for reader in _WITH_PARTS if path.is_file() and reader.is_part(path)), path)


def is_whole(folder: Path) -> bool:
    """Return whether a folder is one evaluation of SWE-bench, Harbor or Terminal-Bench, with a file for each item."""
    return any(reader.recognises(folder) for reader in _WITH_PARTS)


def reader_of(path: Path) -> ModuleType:
    """Return the reader of a file, or of a folder that is one evaluation. Raises ConfigError if no reader fits."""
    try:
        for reader in _FOLDERS if path.is_dir() else READERS:
            if reader.recognises(path):
                return reader
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error.strerror or error})", "make it readable") from None
    if _MEANS.fullmatch(path.name):
        remedy = "evaluate with --log_samples, and name the samples_*.jsonl files"
        raise ConfigError(path, "", None, "holds means, but not the values of the items", remedy)
    if path.suffix in _COMPRESSED:
        remedy = "unpack the file, for example with gunzip, and name the unpacked file"
        raise ConfigError(path, "", None, "is compressed", remedy)
    *titles, last = (each.title for each in formats_of("compare").values())
    remedy = f"name {', '.join(titles)}, or {last}"
    if folder := objects.folder_of(path):
        remedy = f"name the folder {folder} if each JSON file in it is an item; otherwise {remedy}"
    if columns := first_row(path):
        found = one_line(", ".join(columns), 200)
        remedy += f"; if the file is a table, choose from its columns ({found}) with --item and --metric"
    raise ConfigError(path, "", None, "is not a readable evaluation", remedy)


def evaluations_below(folder: Path, problem: Problem, *, tables: bool) -> list[Path]:
    """Return the evaluations below a folder, and report all other files to `problem`.

    tables: whether to read tables; if false, they are read, and reported, only if the folder holds nothing else.

    Raises ConfigError if there is no evaluation.
    """
    others: list[Path] = []
    evaluations: list[Path] = []
    sure = _LOGS if tables else _IN_FOLDERS
    for file in files_below(folder, [*_IN_FOLDERS, *_TABLES], problem, others=others):
        if (place := whole_of(file)) != file:
            evaluations.append(place)
        elif file.suffix == ".json":
            known = any(_recognised(reader, file) for reader in READERS if reader is not table)
            evaluations += [file] if known else []
            others += [] if known else [file]
        elif "tfevents" in file.name:  # TensorBoard's may end in `.eval`
            others.append(file)
        elif any(map(file.match, sure)) or (tables and _is_table(file, problem)):
            evaluations.append(file)
        elif not tables:
            others.append(file)
    evaluations = list(dict.fromkeys(evaluations)) or ([] if tables else _plain(folder, others, problem))
    wholes = {place if place.is_dir() else place.with_name("simulations") for place in evaluations}  # of tau2
    beside = {file.with_name(f"{file.stem.removesuffix('_samples')}.json") for file in evaluations}
    beside |= {*evaluations, *(file for file in others if _EXPLAINS.fullmatch(file.name))}
    unread = [file for file in others if file not in beside and not wholes & set(file.parents)]
    if left := [file.relative_to(folder).as_posix() for file in sorted(unread)]:
        unnamed = not tables and any(file.match(pattern) for file in unread for pattern in _TABLES)
        named = "; to read a table, name its file" if unnamed else ""
        were = "was" if len(left) == 1 else "were"
        problem(f"{folder}: {counted(len(left), 'other file')} {were} not read ({shortened(left)}){named}")
    if not evaluations:
        if means := next((file for file in others if not tables and _MEANS.fullmatch(file.name)), None):
            reader_of(means)  # says what to do
        if packed := next((file for file in sorted(folder.rglob("*")) if file.suffix in _COMPRESSED), None):
            remedy = f"unpack the files, for example {packed.name}"
            raise ConfigError(folder, "", None, "holds compressed files but no readable evaluation", remedy)
        patterns = ", ".join(pattern for pattern in _IN_FOLDERS if not {*"[?"} & {*pattern})
        if tables:
            remedy = f"name a folder with {patterns}, or with tables ({', '.join(_TABLES)}) of items and values"
        else:
            remedy = f"name files, a pattern in quotes, or a folder with any of {patterns}, or with a table"
        raise ConfigError(folder, "", None, "holds no evaluation", remedy)
    return evaluations


def _plain(folder: Path, files: Sequence[Path], problem: Problem) -> list[Path]:
    """Return the tables among the files, or only those with the columns item and value if there are any.

    If there is no table, return the folders with a JSON file for each item.
    """
    found = [file for file in files if any(map(file.match, _TABLES)) or _recognised(table, file)]
    tables = found if len(found) < 2 else [file for file in found if _is_table(file, problem)] or found
    if tables:
        names = shortened([file.relative_to(folder).as_posix() for file in tables])
        problem(f"{folder}: its tables ({names}) are read, because the folder holds no results of a known program")
    return tables or list(objects.folders(file for file in files if not _MEANS.fullmatch(file.name)))


def without_retried(files: Sequence[Path], problem: Problem) -> list[Path]:
    """Return the files, except logs of Inspect that a later try replaced or that are copies; such logs are reported."""
    tries: dict[str, list[tuple[str, Path, str]]] = {}
    for file, tried in _tries(files).items():
        tries.setdefault(tried.task_id, []).append((tried.created, file, tried.status))
    replaced = set()
    for attempts in tries.values():
        last, newest, _ = max(attempts)
        for created, file, status in attempts:
            if created < last:
                problem(f"{file}: is left out (status {status}), because {newest.name} is a later try of the task")
                replaced.add(file)
            elif file != newest and file.with_suffix("") == newest.with_suffix(""):
                problem(f"{file}: is left out, because {newest.name} is the same log")
                replaced.add(file)
    return [file for file in files if file not in replaced]


def without_unfinished(files: Sequence[Path], problem: Problem, doubt: Problem) -> list[Path]:
    """Return the files, except unfinished logs of Inspect if there is a finished log of the same run and task.

    Each log that is left out is reported to `problem`, or to `doubt` if it began after all finished logs of the task,
    which may then be out of date.
    """
    tries = _tries(files)
    last: dict[tuple[Path, str, str, str], str] = {}  # when the newest evaluation that ended began, by run and task
    for file, tried in tries.items():
        if tried.ended:
            place = _run_and_task(file, tried)
            last[place] = max(last.get(place, ""), tried.created)
    left = {file: tried for file, tried in tries.items() if not tried.ended and _run_and_task(file, tried) in last}
    for file, tried in left.items():
        tell = doubt if tried.created > last[_run_and_task(file, tried)] else problem
        tell(_left_out(file, tried))
    return [file for file in files if file not in left]


def _tries(files: Iterable[Path]) -> dict[Path, inspect_ai.Attempt]:
    logs = (file for file in files if file.suffix in (".eval", ".json") and _recognised(inspect_ai, file))
    return {log: tried for log in logs if (tried := inspect_ai.attempt(log)) is not None}


def _run_and_task(log: Path, tried: inspect_ai.Attempt) -> tuple[Path, str, str, str]:
    """Return the folder, the model, the seed in the file's name, and the task of a log."""
    seed = seed_in(log.name)
    return log.parent, tried.model, seed["seed"] if seed else "", tried.task


def _left_out(log: Path, tried: inspect_ai.Attempt) -> str:
    return f"{log}: is left out, because the evaluation did not finish (status {tried.status})"


def _recognised(reader: ModuleType, file: Path) -> bool:
    try:
        return bool(reader.recognises(file))
    except OSError:
        return False


def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs at or below a path. Raises ConfigError if there is no evaluation, or if one is invalid."""
    root = path if path.is_dir() else path.parent
    runs: dict[tuple[Path, int | None], _Sheets] = {}
    logs: list[Path] = []
    files = evaluations_below(path, problem, tables=True) if path.is_dir() else [path]  # lm-eval's by their dates
    for source, file in _newest(files, problem):
        if reader_of(file) is inspect_ai:
            logs.append(file)
            continue
        for value, sheet in _values(file, problem):
            runs.setdefault((source, sheet.seed), {})[sheet.subset, value] = sheet
    logs = without_retried(logs, problem)
    unfinished = {log: tried for log, tried in _tries(logs).items() if not tried.ended}
    if runs or len(unfinished) < len(logs):  # else reading the first one says what to do
        for log, tried in unfinished.items():
            problem(_left_out(log, tried))
        logs = [log for log in logs if log not in unfinished]
    yield from _runs_of_logs(root, logs, problem)
    for (source, seed), sheets in runs.items():
        name = name_below(root, source.with_suffix("") if source.is_file() else source)
        yield ImportedRun(
            source=source,
            id=f"seed {seed}" if seed is not None else EVALUATION,
            name=name if seed is None else f"{name}/seed_{seed}",
            seed=seed,
            items=_items(sheets),
            prompts=_prompts(sheets),
        )


def _runs_of_logs(root: Path, logs: Sequence[Path], problem: Problem) -> Iterator[ImportedRun]:
    """Yield the runs of Inspect's logs: one for each folder and model, with a subset for each task.

    The second log of a task belongs to a second run of the model, and so on.
    """
    runs: dict[tuple[Path, str, int], tuple[str, _Sheets]] = {}
    often: Counter[tuple[Path, str, str]] = Counter()
    begun = {log: tried.created if (tried := inspect_ai.attempt(log)) else "" for log in logs}
    for log in sorted(logs, key=lambda log: (begun[log], log)):
        for value, sheet in _values(log, problem):
            model = str(sheet.facts.settings.get("model", ""))
            place = log.parent, model, often[log.parent, model, sheet.subset]
            runs.setdefault(place, (begun[log], {}))[1][sheet.subset, value] = sheet
            often[log.parent, model, sheet.subset] += 1
    models = Counter(folder for folder, model in {(folder, model) for folder, model, _ in runs})
    for (folder, model, number), (started, sheets) in runs.items():
        name = name_below(root, folder)
        several = (folder, model, 1) in runs
        yield ImportedRun(
            source=folder,
            id=f"{model or EVALUATION}{f' {started}' if several else ''}",
            name=f"{name}/{model}" if models[folder] > 1 else name,
            started=started or None,
            items=_items(sheets),
            prompts=_prompts(sheets),
        )
        if number == 0 and several:
            what = f"{model or 'the model'} was evaluated several times on the same task"
            problem(f"{folder}: {what}; the evaluations are read as separate runs, in the order in which they began")


def _prompts(sheets: _Sheets) -> dict[str, str]:
    asked = {subset: sheet.asked["prompt"] for (subset, _), sheet in sheets.items() if "prompt" in sheet.asked}
    return {subset: hashlib.sha256(digests.tobytes()).hexdigest() for subset, digests in asked.items()}


def _values(file: Path, problem: Problem) -> Iterator[tuple[str, Sheet]]:
    reader = reader_of(file)
    if reader is lm_eval:
        yield from lm_eval.every_value(file, problem)
        return
    for sheet in reader.sheets(file, Wanted()):
        if sheet.unscored:
            item, why = next(iter(sheet.unscored.items()))
            count = len(sheet.unscored)
            problem(one_line(f"{file}: items without a score are left out ({count}; for example {item}: {why})", 400))
        yield sheet.metric, sheet


def _newest(files: Sequence[Path], problem: Problem) -> list[tuple[Path, Path]]:
    """Return pairs (source of the run, file); for lm-eval, the folder and the last file of each task in it."""
    newest: dict[tuple[Path, str], Path] = {}
    for file in files:
        source, task = (file.parent, lm_eval.task_of(file)) if reader_of(file) is lm_eval else (file, "")
        if (older := newest.get((source, task))) is not None:
            problem(f"{older}: is left out, because {file.name} holds newer samples of {task}")
        newest[source, task] = file
    return [(source, file) for (source, _), file in newest.items()]


def _is_table(file: Path, problem: Problem) -> bool:
    """Return whether a table in a folder holds items; if not, report the reason."""
    try:
        if reader_of(file) is table:
            table.columns_of(file)
    except ConfigError as error:
        problem(one_line(f"{file}: is left out ({error.problem})", 400))
        return False
    return True


def _items(sheets: _Sheets) -> pa.Table:
    """Return a run's items (ITEM_ROWS). Items with different targets get different names, so they are never paired."""
    clustered = any(sheet.clusters for sheet in sheets.values())
    tables = []
    for (_, value), sheet in sheets.items():
        wanted = sheet.asked.get("target")
        suffixes = None if wanted is None else [f".{digest:016x}" for digest in wanted.tolist()]
        tables.append(sheet_items(sheet, EVALUATION, value, clustered=clustered, suffixes=suffixes))
    return pa.concat_tables(tables)
