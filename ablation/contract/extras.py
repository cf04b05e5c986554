"""Packages that only some commands need, and the extra of `ablation-tracker` that installs each of them."""

from importlib.util import find_spec

from ablation.contract.errors import TrackerError

EXTRAS = {"snakemake": "grid", "psutil": "grid", "matplotlib": "plots", "tensorboard": "tensorboard"}


def install(package: str) -> str:
    """Return the pip command that installs a package of `EXTRAS`."""
    return f"pip install 'ablation-tracker[{EXTRAS[package]}]'"


def need(package: str, what: str) -> None:
    """Raise TrackerError if a package of `EXTRAS` is not installed.

    what: the activity that needs the package, such as "running a grid"; the error begins with it.
    """
    if find_spec(package) is None:
        raise TrackerError(f"{what} needs {package}, which is not installed; run {install(package)}")
