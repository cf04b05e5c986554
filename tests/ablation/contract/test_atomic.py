"""The one writer of whole files: what it leaves, what its error tells, and that it takes the place of no device."""

import errno
import os
import stat

import pytest

from ablation.contract.atomic import WriteError, remove_leftovers, replacing, write_json, write_text
from ablation.contract.errors import TrackerError


def test_a_file_that_cannot_be_written_is_one_line_and_an_oserror_with_its_number(tmp_path, monkeypatch):
    """The command line prints a TrackerError; a stage tells a full disk from its own faults by the number."""
    file = tmp_path / "status.json"
    write_text(file, "before")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError) as caught:
        write_json(file, {"state": "ok"})
    assert isinstance(caught.value, TrackerError)
    assert isinstance(caught.value, OSError)
    assert (caught.value.errno, caught.value.strerror) == (errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(caught.value).startswith(f"{file}: cannot be written (No space left on device); the previous version")
    assert file.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_an_error_of_the_block_leaves_the_file_and_is_passed_on(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "before")

    def half() -> None:
        with replacing(file) as aside:
            aside.write_text("half")
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        half()
    assert file.read_text() == "before"


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    with replacing(tmp_path / "a.txt") as aside:
        aside.write_text("a")
        left = aside.with_name(aside.name.replace(str(os.getpid()), "12345"))
        left.write_text("part")
        (tmp_path / ".hidden").write_text("kept")
    remove_leftovers(tmp_path)
    left.with_name(f".{os.getpid()}.tmp.a.txt").write_text("of a killed process with this number")
    with replacing(tmp_path / "a.txt") as aside:
        assert not aside.exists()
        aside.write_text("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "a.txt"]


@pytest.mark.parametrize("name", ["null", "link"])
def test_a_device_is_not_replaced(tmp_path, name):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(TrackerError, match="is not a regular file"):
        write_text(tmp_path / name, "text")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert (tmp_path / "link").is_symlink()
