"""The order of the files: those that take minutes first, so that two workers end at the same time."""

LONGEST_FIRST = (
    "test_smoke",
    "test_kills",
    "test_damage",
    "test_full_disk",
    "test_workflow",
    "test_trl",
    "test_wheel",
    "test_hostile",
    "test_kill",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else 99)
