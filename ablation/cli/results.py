"""The commands `collect`, `merge`, `prune` and `status`, which manage a results folder and its database."""

import argparse
import fcntl
import re
import shutil
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from ablation.cli.common import add_shared, print_json, results_folder
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.contract.process import alone, is_locked
from ablation.contract.stage_folder import DATABASE


def declare_collect(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `collect`."""
    parser.description = (
        "Update the database from the stage folders. The old database stays in place until the new one is complete."
    )
    add_shared(parser, "--results", "--json")


def run_collect(arguments: argparse.Namespace) -> int:
    """Update the database; print how many rows its tables have, and how many stages are in each state."""
    from ablation.store.collect import collect

    collected = collect(results_folder(arguments))
    if arguments.json:
        counts = [{"state": state, "stages": count} for state, count in collected.states.items()]
        print_json("collect", counts, tables=collected.rows, problems=list(map(str, collected.problems)))
        return 0
    rows = ", ".join(f"{count} {table}" for table, count in collected.rows.items())
    states = ", ".join(f"{count} {state}" for state, count in collected.states.items())
    for problem in collected.problems:
        print(f"note: {problem}", file=sys.stderr)
    print(f"{collected.database}: {rows}; stages: {states}")
    return 0


def declare_merge(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `merge`."""
    parser.description = (
        "Add the stages of another results folder, such as those that another site has run.\n"
        "Stages made from the same inputs have the same key. If a stage succeeded in both folders with different "
        "items, weights or metrics, the command reports an error and adds nothing."
    )
    add_shared(parser, "--results", "--json")
    parser.add_argument("other", metavar="OTHER_RESULTS", type=Path, help="the other results folder")
    parser.add_argument("--site", help="name of the other folder in the provenance of the stages (default: its path)")


def run_merge(arguments: argparse.Namespace) -> int:
    """Add the stages of another results folder; print the number of added stages."""
    from ablation.store.merge import merge

    merged = merge(results_folder(arguments), arguments.other, arguments.site or str(arguments.other))
    if arguments.json:
        print_json("merge", [], **asdict(merged))
        return 0
    left = f", {merged.left_out} left out (failed or damaged)" if merged.left_out else ""
    print(f"{counted(merged.added, 'stage')} added, {merged.in_both} in both folders{left}")
    return 0


def declare_prune(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `prune`."""
    parser.description = (
        "Remove stages that are no longer needed.\n"
        "A stage is kept if the current configurations, the plan that was started last, or the database behind the "
        "tables and verdicts needs it."
    )
    parser.add_argument("--dry-run", action="store_true", help="count the stages without removing them")
    add_shared(parser, "--scale", "--config", "--json")


def run_prune(arguments: argparse.Namespace) -> int:
    """Print the number and size of stages that are not needed; without --dry-run, remove these stages."""
    from ablation.cli.configs import settings_of
    from ablation.plan.build import build_plan
    from ablation.plan.plan_file import read_plan
    from ablation.store.database import Store
    from ablation.store.merge import unfinished_copies

    plan = build_plan(settings_of(arguments))
    results = plan.settings.results
    needed = {stage.key for stage in (*plan.content.stages, *read_plan(plan.file).stages)}
    if (results / DATABASE).exists():
        with Store(results / DATABASE) as store:
            needed |= {key for (key,) in store.rows("SELECT key FROM stages")[1]}
    with (results / ".lock").open("a") as lock:  # Snakemake's, while it runs
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait until Snakemake has ended, then run `ablation prune` again"
            raise ConfigError(results, "", None, "Snakemake is running in this folder", remedy) from None
        unneeded = [folder for folder in _stage_folders(results) if folder.name not in needed and not is_locked(folder)]
        sizes: dict[str, list[int]] = defaultdict(list)
        for folder in unneeded:
            size = sum(path.lstat().st_size for path in folder.rglob("*"))
            sizes[".".join(folder.relative_to(results / "stages").parent.parts)].append(size)
            if not arguments.dry_run:
                shutil.rmtree(folder)
        with alone(results / ".collect.lock"):
            for left in unfinished_copies(results) if not arguments.dry_run else ():
                shutil.rmtree(left)
    if arguments.json:
        rows = [{"stage": id, "folders": len(each), "bytes": sum(each)} for id, each in sizes.items()]
        print_json("prune", rows, removed=not arguments.dry_run)
        return 0
    for id, bytes_each in sizes.items():
        print(f"{id}: {counted(len(bytes_each), 'stage')}, {sum(bytes_each) / 1e6:,.1f} MB")
    total = sum(map(sum, sizes.values())) / 1e6
    done = "would be removed" if arguments.dry_run else "removed"
    print(f"{done}: {counted(len(unneeded), 'stage')} ({total:,.1f} MB) that neither a plan nor the database needs")
    return 0


def _stage_folders(results: Path) -> list[Path]:
    """Return the folders whose names are keys of stages; links are left out."""
    folders = [*results.glob("stages/assets/*"), *results.glob("stages/*/*/*")]
    return sorted(
        path for path in folders if re.fullmatch("[0-9a-f]{16}", path.name) and path.is_dir() and not path.is_symlink()
    )


def declare_status(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `status`."""
    parser.description = "Show each study's progress, what is running, what failed, and the time left."
    add_shared(parser, "--results")
    form = parser.add_mutually_exclusive_group()
    text = "list only stages that failed, diverged, are blocked or are corrupt; exit with 1 if there are any"
    form.add_argument("--failed", action="store_true", help=text)
    add_shared(form, "--json")
    form.add_argument("--watch", action="store_true", help="repeat until no stage is left to run; stop with Ctrl-C")


def run_status(arguments: argparse.Namespace) -> int:
    """Print the state of the grid, once or until all stages have ended."""
    from ablation.store.progress import as_rows, describe, watch

    results = results_folder(arguments)
    if arguments.failed:
        from ablation.store.current import load_or_collect
        from ablation.store.progress import failures

        text, passed = failures(load_or_collect(results, strict=True))
        print(text, end="", file=sys.stdout if passed else sys.stderr)
        return 0 if passed else 1
    if arguments.json:
        print_json("status", as_rows(results))
        return 0
    if not arguments.watch:
        print(describe(results), end="")
        return 0
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() else ""
    try:
        for text in watch(results):
            getattr(sys.stdout, "stream", sys.stdout).write(clear)  # past what escapes control characters
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        print()
    return 0
