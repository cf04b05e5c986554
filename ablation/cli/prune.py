"""`ablation prune`: removes stages that nothing needs any more; without --yes it only lists them."""

import argparse
import fcntl
import re
import shutil
from collections import defaultdict
from pathlib import Path

from ablation.cli.configs import settings_of
from ablation.contract.errors import ConfigError
from ablation.contract.process import is_locked
from ablation.contract.stage_folder import DATABASE
from ablation.plan.build import build_plan
from ablation.plan.keys import KEY_LENGTH
from ablation.plan.plan import ASSETS
from ablation.plan.plan_file import read_plan
from ablation.store.database import Store

_KEY = re.compile(f"[0-9a-f]{{{KEY_LENGTH}}}")


def run_prune(arguments: argparse.Namespace) -> int:
    """List the stages that nothing needs, and their size; with --yes, remove them."""
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
            raise ConfigError(results, "", None, "snakemake runs here", "wait for it, and prune then") from None
        unneeded = [folder for folder in _stages(results) if folder.name not in needed and not is_locked(folder)]
        sizes: dict[str, list[int]] = defaultdict(list)
        for folder in unneeded:
            sizes[".".join(folder.relative_to(results / "stages").parent.parts)].append(_size(folder))
            if arguments.yes:
                shutil.rmtree(folder)
    for id, found in sizes.items():
        print(f"{id}: {len(found)} x, {sum(found) / 1e6:,.1f} MB")
    total = sum(map(sum, sizes.values())) / 1e6
    done = "removed" if arguments.yes else "would be removed: pass --yes" if unneeded else "nothing to remove"
    print(f"{len(unneeded)} stages, {total:,.1f} MB, that no plan and no database needs: {done}")
    return 0


def _stages(results: Path) -> list[Path]:
    """Return the folders of all stages; links and other names are left out."""
    found = [*results.glob(f"stages/{ASSETS}/*"), *results.glob("stages/*/*/*")]
    return sorted(path for path in found if _KEY.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))
