"""Break one line at a time and see the named tests of `make test` fail: `python tests/planted/plant.py [WORD ...]`.

Each fault of `faults.tsv` is planted in a copy of the files that git knows: a file or a folder, a part of a line in it,
what replaces that, tests. Words choose the faults: all of its line.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAKE_TEST = "not rest and not peers and not parallel and not long"  # the tests that `make test` runs


def main(words: list[str]) -> int:
    missed, lines = [], (HERE / "faults.tsv").read_text().splitlines()
    faults = [line.split("\t") for line in lines if all(word in line for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).strip("\0").split("\0"):
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, Path(folder, name), follow_symlinks=False)
        for name, old, new, tests in faults:
            place = Path(folder, name)
            files = [place] if place.is_file() else sorted(place.rglob("*.py"))
            found = [path for path in files if path.read_text(encoding="utf-8").count(old) == 1]
            if len(found) != 1:
                print("GONE", name, f"once in {len(found)} files: {old}", sep="\t", flush=True)
                missed.append(name)
                continue
            [path], text = found, found[0].read_text(encoding="utf-8")
            path.write_text(text.replace(old, new), encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", MAKE_TEST, *tests.split()]
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": folder},
                capture_output=True,
                text=True,
                check=False,
            )
            path.write_text(text, encoding="utf-8")
            caught = done.returncode == 1
            print("caught" if caught else f"MISSED ({done.returncode})", name, new, sep="\t", flush=True)
            missed += [] if caught else [name]
    print(f"{len(faults) - len(missed)} of {len(faults)} caught")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
