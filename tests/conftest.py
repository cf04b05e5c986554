"""The order of the files, those that take minutes first, so that two workers end at the same time; which tests wait."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
LONGEST_FIRST = (
    *("test_smoke", "test_kills", "test_workflow", "test_trl", "test_full_disk", "test_damage"),
    *("test_followed_pages", "test_fuzz", "test_updates", "test_wheel", "test_loads", "test_whole_stages"),
    *("test_hostile", "test_export", "test_kill"),
)

# What `make test-fast` leaves out: a folder, and files whose tests take more than two seconds together on a core
# (by `pytest --junitxml`).
SLOW = {"browser", *(TESTS / "slow.txt").read_text().split()}
REST = {"accelerator", "chaos", "parallel", "test_access", "test_serve"}  # and those that only `make test-all` runs
MARKS = re.compile(r"mark\.(rest|peers)|\b(sized|stored)\b")  # what marks single tests of a file so, or a library's


def places(path):
    """The names by which SLOW and REST may name a file: its folder's, its own, its place below tests/."""
    return {path.parent.name, path.stem, path.relative_to(TESTS).as_posix()}


def pytest_ignore_collect(collection_path, config):
    """Skip files without a test for `make test-rest` or `test-fast`: each worker would import them all."""
    chosen = config.option.markexpr
    if not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    if chosen.startswith("not slow"):
        return True if (SLOW | REST) & places(collection_path) else None
    if chosen.startswith("(rest or peers)") and not REST & places(collection_path):
        return None if MARKS.search(collection_path.read_text(encoding="utf-8")) else True
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        for marker, named in {"slow": SLOW | REST, "rest": REST}.items():
            if named & places(item.path):
                item.add_marker(marker)
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else 99)
