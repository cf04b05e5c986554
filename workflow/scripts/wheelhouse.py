"""Download the wheels that a Linux machine without a package index still needs (docs/how-to/clusters.md).

    python workflow/scripts/wheelhouse.py --python 3.12 --have have.txt --to wheelhouse

`have.txt` is the output of `pip list --format=freeze` on that machine. Packages whose versions there satisfy
pyproject.toml stay; the others get the versions of requirements.lock. The script needs `packaging`.
"""

import argparse
import email
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# Wheels are tagged by the oldest glibc that they run on; 2.39 is that of the newest distributions in wide use.
GLIBC = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, 40))]


def main() -> None:
    """Follow the requirements, beginning with the project's own, and download what is missing."""
    arguments = _parse()
    have = {canonicalize_name(pin.name): pin for pin in _pins(arguments.have)} if arguments.have else {}
    versions = {name: next(iter(pin.specifier)).version for name, pin in have.items()}
    target = {
        "python_version": arguments.python,
        "python_full_version": f"{arguments.python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arguments.machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
    }
    lock = {
        canonicalize_name(pin.name): pin for pin in _pins(ROOT / "requirements.lock") if _applies(pin, target, [""])
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    extras = list(arguments.extras)
    while extras:
        for each in map(Requirement, project["optional-dependencies"][extras.pop()]):
            if each.name == project["name"]:
                extras += each.extras
            else:
                waiting.append(each)
    arguments.to.mkdir(parents=True, exist_ok=True)
    done: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in versions and wanted.specifier.contains(versions[name], prereleases=True):
            continue
        if name in done:
            continue
        done.add(name)
        wheel = _download(lock.get(name, wanted), arguments)
        print(wheel.name, flush=True)
        waiting += [each for each in _requirements(wheel) if _applies(each, target, ["", *wanted.extras])]
    size = sum(wheel.stat().st_size for wheel in arguments.to.glob("*.whl"))
    print(f"{arguments.to}: {len(done)} wheels, {size / 1e6:.0f} MB")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="Python version of the target machine, such as 3.12")
    parser.add_argument(
        "--have",
        type=Path,
        help="file with the output of `pip list --format=freeze` on the target machine (default: no packages)",
    )
    parser.add_argument("--to", type=Path, default=Path("wheelhouse"), help="folder of wheels (default: wheelhouse)")
    parser.add_argument("--machine", default="x86_64", help="processor of the target machine, as `uname -m` prints it")
    extras_help = "extras of pyproject.toml whose packages are needed (default: all trainers)"
    parser.add_argument("--extras", nargs="*", default=["all", "trainers"], help=extras_help)
    arguments = parser.parse_args()
    if not re.fullmatch(r"3\.\d+", arguments.python):
        parser.error(f"--python {arguments.python} is not a Python version; write one such as 3.12")
    return arguments


def _pins(path: Path) -> Iterator[Requirement]:
    for line in path.read_text().splitlines():
        if "==" in line and not line.lstrip().startswith(("#", "-")):
            yield Requirement(line)


def _applies(requirement: Requirement, target: dict[str, str], extras: list[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({**target, "extra": each}) for each in extras)


def _download(wanted: Requirement, arguments: argparse.Namespace) -> Path:
    """Download a wheel for the target, or build one if only the source is published; return its path."""
    words = f"{wanted.name}{wanted.specifier}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    tags = [word for tag in GLIBC for word in ("--platform", f"{tag}_{arguments.machine}")]
    with tempfile.TemporaryDirectory(dir=arguments.to) as folder:
        common = ["--no-deps", "--quiet", "--quiet"]
        target = ["--only-binary=:all:", "--python-version", arguments.python, "--implementation", "cp", *tags]
        download = [*pip, "download", *common, *target, "-d", folder, words]
        ready = subprocess.run(download, stderr=subprocess.DEVNULL, check=False)
        if ready.returncode:  # only its source is published
            subprocess.run([*pip, "wheel", *common, "-w", folder, words], check=False)
        if not list(Path(folder).glob("*-any.whl" if ready.returncode else "*.whl")):
            problem = f"no wheel for Python {arguments.python} on {arguments.machine} exists or can be built"
            sys.exit(f"error: {words}: {problem}; write another version in requirements.lock")
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.replace(arguments.to / wheel.name)


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


if __name__ == "__main__":
    main()
