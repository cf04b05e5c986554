"""A file takes the place of a file, never of a device."""

import os
import stat
from pathlib import Path

import pytest

from ablation.contract.atomic import write_text
from ablation.contract.errors import TrackerError


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


def test_a_path_without_a_name_is_one_line():
    with pytest.raises(TrackerError, match="/: is not a regular file"):
        write_text(Path("/"), "text")
