"""The command `prune`: removes stages that nothing needs any more."""

import argparse
import fcntl
import re
import shutil
from collections import defaultdict
from pathlib import Path

from ablation.cli.common import add_configs, add_json, print_json
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.contract.process import alone, is_locked
from ablation.contract.stage_folder import DATABASE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Remove stages that nothing needs any more.\n"
        "A stage is kept if the current configurations need it, or the plan that was started last, or the database "
        "behind tables and verdicts."
    )
    parser.add_argument("--dry-run", action="store_true", help="list the stages without removing them")
    add_configs(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the stages that nothing needs, and their size; without --dry-run, remove them."""
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
            raise ConfigError(
                results, "", None, "snakemake is running here", "wait until it has ended, then prune"
            ) from None
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
    """Return the folders of all stages; links and other names are left out."""
    folders = [*results.glob("stages/assets/*"), *results.glob("stages/*/*/*")]
    return sorted(
        path for path in folders if re.fullmatch("[0-9a-f]{16}", path.name) and path.is_dir() and not path.is_symlink()
    )
