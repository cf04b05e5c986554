"""A full disk: the previous version stays, the error is one line, and with space again the work goes on."""

import errno
import os
import resource
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from ablation.cli.main import main
from tests.chaos import database
from tests.chaos.light import finish, fresh
from tests.chaos.test_passes import limited
from tests.simulate import Study, simulate
from tests.workflow.project import wait_for
from trainers.running import checkpoint

FULL = os.strerror(errno.ENOSPC)


def fill(folder, leave=0):
    """Leave no space but `leave` bytes."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(bytes(4096)) > 0:
                pass
        assert shutil.disk_usage(folder).free < 4096
        file.truncate(max(0, file.tell() - leave))


def listing(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("leave", [0, 4096, 40_000])
def test_a_checkpoint(tmp_path, mount, leave):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount(disk, size="4m")
    checkpoint.save(disk / "c", 1, {"w": torch.ones(1000)}, {})
    fill(disk, leave=leave)
    with pytest.raises(Exception, match=FULL):
        checkpoint.save(disk / "c", 2, {"w": torch.zeros(100_000)}, {})
    found = checkpoint.load(disk / "c")
    assert (found.step, found.tensors["w"].sum().item()) == (1, 1000)
    (disk / "ballast").unlink()
    checkpoint.save(disk / "c", 2, {"w": torch.zeros(100_000)}, {})
    assert checkpoint.load(disk / "c").step == 2


@pytest.mark.parametrize("size", [1000, 13_000, 300_000, 2_000_000])
def test_the_database(tmp_path, capsys, size):
    """At the first bytes, in the commits of the shards and at the end, without a disk of our own."""
    results = tmp_path / "results"
    simulate(results, [Study(seeds=2, variants=3, items={"a": 200}, steps=2000)])
    assert main(["collect", "--results", str(results)]) == 0
    for shard in results.glob("stages/**/metrics.parquet"):  # a collect writes nothing where nothing has changed
        os.utime(shard)
    before = listing(results)
    capsys.readouterr()
    with limited(resource.RLIMIT_FSIZE, size):
        assert main(["collect", "--results", str(results)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {results}/tracker.duckdb: cannot be written (")
    assert os.strerror(errno.EFBIG) in line
    assert "the previous version is unchanged" in line
    assert listing(results) == before


def test_a_grid_goes_on_when_there_is_space_again(finished, tmp_path, mount):
    project = fresh(finished, tmp_path / "project")
    results = project.folder / "results"
    results.mkdir()
    mount(results, size="32m")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(project.snakemake, check=False)
        wait_for(lambda: list(results.glob("stages/debias/train/*/progress.json")))
        fill(results)
    ended = running.result()
    assert ended.returncode != 0
    said = [line for line in ended.stdout.splitlines() if FULL in line and line.strip().startswith("debias.train")]
    assert said, ended.stdout
    assert "Traceback" not in ended.stdout
    for status in project.statuses():
        assert '"state": "ok"' in status.read_text()  # a fault of the disk is not a result of the variant
    started = project.snakemake(check=False)
    assert started.returncode != 0
    assert FULL in started.stdout
    assert "Traceback" not in started.stdout
    (results / "ballast").unlink()
    finish(project)
    database.assert_equal(results / "tracker.duckdb", finished.folder / "results/tracker.duckdb")
    wait_for(lambda: project.processes() == [])  # the fork server takes a moment to end


def test_a_collect_that_fails_under_snakemake_leaves_the_old_database(project, mount):
    """Snakemake deletes the outputs of a rule before it runs it again, unless they are marked otherwise."""
    results, reports = project.folder / "results", project.folder / "reports"
    before = {path: path.read_bytes() for path in (results / "tracker.duckdb", reports / "index.html")}
    aside = project.folder / "aside"
    shutil.move(results, aside)
    results.mkdir()
    size = sum(path.stat().st_size for path in aside.rglob("*") if path.is_file())
    mount(results, size=f"{size // 1024 + 12_000}k")
    subprocess.run(["cp", "-a", f"{aside}/.", str(results)], check=True)
    project.edit("configs/studies/debias/b.yaml", "another objective", "to be collected again")
    source = "ablation/store/collect.py"
    project.write(source, project.read(source) + FILLING.format(ballast=str(results / "ballast")))
    done = project.snakemake(check=False)
    assert done.returncode != 0
    assert "tracker.duckdb: cannot be written" in done.stdout
    (results / "ballast").unlink()
    for path, content in before.items():
        assert path.read_bytes() == content, path


# The disk is full from the moment at which the collect begins: the plan could still be written.
FILLING = """

_whole = _collect

def _collect(*whatever, **settings):
    with open({ballast!r}, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return _whole(*whatever, **settings)
"""
