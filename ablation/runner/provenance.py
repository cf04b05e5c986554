"""Provenance of a result: code, packages, hardware, inputs and command."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from ablation.contract.atomic import write_json, write_text
from ablation.contract.status import read_state

PROVENANCE, DIFF = "provenance.json", "diff.patch"
_PACKAGES = Path(__file__).resolve().parents[2]
_NAME, _VERSION = (re.compile(rf"^{field}:(.*)$", re.MULTILINE) for field in ("Name", "Version"))


def write_provenance(out: Path, inputs: Mapping[str, Path], argv: Sequence[str], tree: Path = _PACKAGES) -> None:
    """Write `provenance.json` into `out`, and `diff.patch` if the working tree differs from its commit.

    tree: folder in the git repository of the code, by default the folder that holds this package.
    """
    git = describe_tree(tree)
    diff = git.pop("diff")
    (out / DIFF).unlink(missing_ok=True)
    if diff:
        write_text(out / DIFF, diff)
    write_json(
        out / PROVENANCE,
        {
            "git": {**git, "diff_file": DIFF if diff else None},
            "python": platform.python_version(),
            "packages": _packages(),
            "hardware": describe_hardware(),
            "inputs": {
                name: {"stage": status.stage, "key": status.key, "ended": status.ended}
                for name, status in ((name, read_state(folder)) for name, folder in inputs.items())
            },
            "argv": list(argv),
            "environment": {
                k: v for k, v in sorted(os.environ.items()) if k in _ENVIRONMENT or k.startswith("ABLATION_")
            },
        },
    )


_ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "OMP_NUM_THREADS", "HF_ENDPOINT", "SLURM_JOB_ID")


def describe_tree(root: Path) -> dict[str, Any]:
    """Return the commit, whether the tree is dirty, its untracked files and its diff; all are None outside git."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "untracked": None, "diff": None}
    diff = _git(root, "diff", "HEAD", "--no-ext-diff", "--no-color") or ""
    untracked = (_git(root, "ls-files", "--others", "--exclude-standard") or "").splitlines()
    return {"commit": commit.strip(), "dirty": bool(diff or untracked), "untracked": untracked, "diff": diff}


def describe_hardware() -> dict[str, Any]:
    """Return the processor, its cores, the memory in bytes, and the accelerators that are visible to this process."""
    torch = sys.modules.get("torch")  # a command's stage has not imported it
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if torch else []
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "threads": torch.get_num_threads() if torch else None,
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.total_memory} for gpu in gpus],
        "cuda": torch.version.cuda if torch else None,
    }


def _packages() -> dict[str, str]:
    """Return {package: version} of all installed packages; of two with the same name, the first on the module path.

    Regular expressions read the two fields, because parsing all metadata takes 0.15 s.
    """
    metadata = [d.read_text("METADATA") or d.read_text("PKG-INFO") or "" for d in distributions()]
    heads = (text.partition("\n\n")[0] for text in reversed(metadata))
    found = ((_NAME.search(head), _VERSION.search(head)) for head in heads)
    return {name[1].strip(): version[1].strip() for name, version in found if name and version}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        if arguments[0] != "rev-parse":
            print(f"git {arguments[0]}: {error}", file=sys.stderr)
        return None
    return done.stdout
