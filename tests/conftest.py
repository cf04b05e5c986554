"""The order of the files, those that take minutes first, so that two workers end at the same time; what is slow."""

LONGEST_FIRST = (
    *("test_smoke", "test_kills", "test_workflow", "test_trl", "test_full_disk", "test_damage"),
    *("test_followed_pages", "test_fuzz", "test_updates", "test_wheel", "test_loads", "test_whole_stages"),
    *("test_hostile", "test_export", "test_kill"),
)

SLOW = {"browser", "chaos"}  # folders of which each file opens a browser or runs a grid


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name in SLOW:
            item.add_marker("slow")
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else 99)
