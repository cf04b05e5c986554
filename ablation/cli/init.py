"""The command `init`: create a project."""

import argparse
import os
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

from ablation.contract.errors import ConfigError
from ablation.contract.extras import install

TEMPLATE = Path(__file__).with_name("new_project")
_PROFILES = "profiles"


def declare_init(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `init`."""
    parser.description = (
        "Create a project: configurations, an example study of a small Python program, and a Snakefile."
    )
    text = "folder of the project (default: .)"
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=Path(), help=text)


def run_init(arguments: argparse.Namespace) -> int:
    """Write the files of the project; print how to run the project's study."""
    from ablation.plan.start import WORKFLOW

    folder: Path = arguments.folder
    files = {_named(path): path for path in sorted(TEMPLATE.rglob("*")) if path.is_file() and path.suffix != ".pyc"}
    profiles = Path(WORKFLOW) / _PROFILES
    files |= {
        Path("workflow") / _PROFILES / path.relative_to(profiles): path
        for path in sorted(profiles.rglob("*"))
        if path.is_file()
    }
    if folder.exists() and not folder.is_dir():
        raise ConfigError(folder, "", None, "is a file, not a folder", "choose another name")
    for name in (Path("configs"), Path("workflow"), Path(_PROFILES), *files):
        if os.path.lexists(folder / name):
            problem = "already exists, and `init` does not overwrite files"
            raise ConfigError(folder / name, "", None, problem, "name another folder, or move this file")
    try:
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
        (folder / _PROFILES).symlink_to(Path("workflow") / _PROFILES)
    except OSError as error:
        raise ConfigError(folder, "", None, f"cannot be written ({error.strerror})", "name another folder") from None
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"created a project in {folder}; run its study, configs/studies/example, with `{there}snakemake --cores 2`")
    if find_spec("snakemake") is None:
        print(f"Snakemake is not installed; install it with: {install('snakemake')}")
    return 0


def _named(path: Path) -> Path:
    """Return the path of a template file in the new project.

    The template's `gitignore` has no dot, because git would apply it in this repository.
    """
    name = path.relative_to(TEMPLATE)
    return Path(".gitignore") if name == Path("gitignore") else name
