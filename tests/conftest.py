"""The order of the files, those that take minutes first, so that two workers end at the same time; which tests wait."""

LONGEST_FIRST = (
    *("test_smoke", "test_kills", "test_workflow", "test_trl", "test_full_disk", "test_damage"),
    *("test_followed_pages", "test_fuzz", "test_updates", "test_wheel", "test_loads", "test_whole_stages"),
    *("test_hostile", "test_export", "test_kill"),
)

SLOW = {"browser"}  # folders or files that take minutes
REST = {"accelerator", "chaos", "parallel", "test_access", "test_serve"}  # and those that only `make test-all` runs


def pytest_collection_modifyitems(items):
    for item in items:
        for marker, places in {"slow": SLOW | REST, "rest": REST}.items():
            if places & {item.path.parent.name, item.path.stem}:
                item.add_marker(marker)
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.stem) if item.path.stem in LONGEST_FIRST else 99)
