"""The order of the files, those that take minutes first, so that two workers end at the same time; which tests wait."""

import re

LONGEST_FIRST = (
    *("test_smoke", "test_kills", "test_workflow", "test_trl", "test_full_disk", "test_damage"),
    *("test_followed_pages", "test_fuzz", "test_updates", "test_wheel", "test_loads", "test_whole_stages"),
    *("test_hostile", "test_export", "test_kill"),
)

SLOW = {"browser"}  # folders or files that take minutes
REST = {"accelerator", "chaos", "parallel", "test_access", "test_serve"}  # and those that only `make test-all` runs
MARKS = re.compile(r"mark\.(rest|peers)|\b(sized|stored)\b")  # what marks single tests of a file so, or a library's


def pytest_ignore_collect(collection_path, config):
    """Skip, in `make test-rest`, files without a test for it: each worker would import them all, in half a minute."""
    if not config.option.markexpr.startswith("(rest or peers)") or not collection_path.name.startswith("test_"):
        return None
    places = {collection_path.parent.name, collection_path.stem}
    return None if REST & places or MARKS.search(collection_path.read_text(encoding="utf-8")) else True


def pytest_collection_modifyitems(items):
    for item in items:
        for marker, places in {"slow": SLOW | REST, "rest": REST}.items():
            if places & {item.path.parent.name, item.path.stem}:
                item.add_marker(marker)
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else 99)
