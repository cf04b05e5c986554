"""Slurm for real: devices, faults, logs, and a report equal to the local one."""

import json
import re
import shlex
import subprocess

import pytest

from tests.chaos.light import real
from tests.cluster.grid import Grid, report
from tests.trainers.parallel.test_stages import of_stage, reached, write
from tests.trainers.toy_stage import command, environment, status
from tests.workflow.project import MODULES, ROOT, kill, wait_for

pytestmark = pytest.mark.cluster

PREPARED, TRAINED = ("--until", "debias_prepare"), ("--until", "debias_train")


@pytest.fixture(scope="module")
def faulty(slurm, tmp_path_factory):
    """A grid with a job for each run, one cancelled and one over its time; and the same grid run here undisturbed."""
    grid = Grid.create(tmp_path_factory.mktemp("faulty") / "grid", cancelled="hold-1", late="hold-2")
    local = Grid(grid.copy(tmp_path_factory.mktemp("local") / "grid").folder)
    process = grid.submit("--config", "group_minutes=30")
    try:
        cancelled, late = ((grid.held(mode) / "held").read_text() for mode in ("hold-1", "hold-2"))
        subprocess.run(["scancel", cancelled], check=True)
        # Its limit was long enough for a machine with much to do; Slurm's least is a minute.
        subprocess.run(["scontrol", "update", f"JobId={late}", "TimeLimit=1"], check=True)
    finally:
        grid.finish(process)
    local.snakemake()
    return grid, local


def test_two_jobs_at_most_and_never_one_device_for_two(faulty):
    """A second user of a device fails (grid.py), and so would its variant."""
    grid, _ = faulty
    uses = [line.split() for line in grid.read("devices/uses").splitlines()]
    assert {device for _, device, _ in uses} == {"0", "1"}  # those of gres.conf: both were used
    assert all(visible == device for _, device, visible in uses)  # and the trainer sees the one that its job was given
    assert len({job for job, _, _ in uses}) == len(uses) == 5  # three variants, two of them twice


def test_a_cancelled_job_and_a_late_one_are_retried_and_resume(faulty):
    grid, _ = faulty
    failed = [path.read_text() for path in grid.folder.glob(".snakemake/slurm_logs/**/*.log")]
    assert [sum("DUE TO TIME LIMIT" in text for text in failed), sum("CANCELLED" in text for text in failed)] == [1, 2]
    assert grid.attempts() == {"a": 1, "cancelled": 2, "late": 2}
    for mode in ("hold-1", "hold-2"):
        folder = grid.held(mode)
        assert "resumed after step" in (folder / "log.txt").read_text()
        assert "attempt 1" in (folder / "log.attempt-1.txt").read_text()


def test_logs_arrive(faulty):
    grid, _ = faulty
    for stage in grid.statuses():
        assert "attempt" in (stage.parent / "log.txt").read_text()
    failed = re.findall(r"group_\w+/\d+\.log", " ".join(map(str, grid.folder.glob(".snakemake/**/*.log"))))
    assert len(failed) == 2  # the scheduler's own logs of the two that failed stay, the others go


def test_short_stages_of_one_run_are_one_job_which_is_run_again_as_a_whole(faulty):
    grid, _ = faulty
    assert len(grid.statuses()) == 1 + 2 * 3
    assert len(set(re.findall(r"SLURM jobid (\d+)", grid.log()))) == 1 + 3 + 2  # prepare; each run; two again


def test_the_report_is_the_local_one(faulty):
    grid, local = faulty
    assert report(grid.folder) == report(local.folder)


def test_a_job_on_the_cluster_neither_locks_nor_plans(faulty):
    """Only the Snakemake that the user started holds the results; otherwise no job could run beside it."""
    grid, _ = faulty
    assert "another snakemake runs here" not in grid.log()
    assert "Nothing to be done" in grid.snakemake().stdout  # the local profile finds all of it


def test_jobs_of_a_killed_snakemake_are_neither_lost_nor_run_twice(slurm, tmp_path):
    """Two jobs hold both devices when Snakemake is killed; the next Snakemake submits both stages again."""
    grid = Grid.create(tmp_path / "grid", *TRAINED, "--config", "variant=a", d="hold-d", e="hold-e")
    first = grid.submit(*TRAINED)
    grid.held("hold-d")
    grid.held("hold-e")
    kill(first.pid)
    first.wait()
    orphans = jobs()
    assert orphans
    second = grid.submit(*TRAINED)
    try:
        grid.wait_for(lambda: len(jobs() - orphans) >= 2)
        grid.release("hold-d")  # ends before its second job starts
        grid.wait_for(lambda: waiting(grid))  # the second job of the other has started, the first still runs
        grid.release("hold-e")
    finally:
        grid.finish(second)
    assert grid.attempts() == {"a": 1, "d": 1, "e": 1}
    assert len(grid.read("devices/uses").splitlines()) == 2
    assert not jobs()


def jobs():
    """Return the ids of the jobs in the queue, running or not."""
    found = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def waiting(grid):
    return any("waits for process" in path.read_text() for path in grid.folder.glob(".snakemake/slurm_logs/**/*.log"))


def test_cluster_generic_with_the_commands_of_slurm(slurm, tmp_path):
    grid = Grid.create(tmp_path / "grid", *PREPARED, d="hold-d")
    process = grid.submit(*TRAINED, profile="cluster-generic")
    try:
        subprocess.run(["scancel", (grid.held("hold-d") / "held").read_text()], check=True)
    finally:
        grid.finish(process)
    assert grid.attempts() == {"a": 1, "d": 2}
    devices = {tuple(line.split()[1:]) for line in grid.read("devices/uses").splitlines()}
    assert devices == {("0", "0"), ("1", "1")}


def test_a_run_of_the_smoke_grid_with_the_real_trainers(slurm, tmp_path):
    grid = Grid(real(tmp_path / "grid").folder)
    words = ("--config", "scale=smoke", "studies=[debias]", "variant=baseline", "group_minutes=60")
    grid.snakemake(*PREPARED, *words)
    grid.finish(grid.submit(*words))
    assert {json.loads(path.read_text())["state"] for path in grid.statuses()} == {"ok"}
    assert "baseline" in grid.read("reports/debias/runs.csv")


def with_ranks(grid, resources):
    """Give the train stage these devices, and let it say which rank was where."""
    found = (
        "[stage.ranks.rank] + [os.environ[name] for name in"
        " ('CUDA_VISIBLE_DEVICES', 'SLURM_JOB_ID', 'SLURMD_NODENAME', 'LOCAL_WORLD_SIZE')]"
    )
    grid.write(
        "trainers/debias/train.py",
        "from trainers.parallel import join\n"
        + MODULES["train"].replace("\ndef run(", "\nRANKS = join\n\ndef run(")
        + f'    write_json(stage.out / "ranks.of.job.json", stage.ranks.gather({found}))\n',
    )
    grid.edit("configs/studies/debias/_study.yaml", "gpu: 1", resources)


def ranks_of(grid):
    """Return what each rank said, and the stage's status."""
    (path,) = grid.folder.glob("results/stages/debias/train/*/ranks.of.job.json")
    return json.loads(path.read_text()), json.loads((path.parent / "status.json").read_text())


def test_a_job_of_two_devices_starts_once_and_runs_a_process_for_each(slurm, tmp_path):
    grid = Grid.create(tmp_path / "grid", *PREPARED)
    with_ranks(grid, "gpu: 2")
    grid.finish(grid.submit(*TRAINED, "--config", "variant=a"))
    ranks, ended = ranks_of(grid)
    assert [rank[:2] for rank in ranks] == [[0, "0,1"], [1, "0,1"]]
    assert len({job for _, _, job, *_ in ranks}) == 1
    assert (ended["state"], ended["devices"], ended["attempt"]) == ("ok", 2, 1)


def submit(out):
    """Submit a stage on two devices as the plugin does, but without Snakemake; return the job's number."""
    words = shlex.join(command(out, "--gpus", "2"))
    line = ["sbatch", "--parsable", f"--output={out.parent}/job.txt", "--gpus=2", "--mem=500", f"--wrap=exec {words}"]
    env = environment(out, ABLATION_FAKE_GPUS="2")
    return subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_two_ranks_end_with_scancel_with_a_rank_and_with_their_first_process(slurm, tmp_path):
    """Each time within seconds, without a status, and the next job goes on from the checkpoint."""
    out = write(tmp_path, pause=1.0)
    job = submit(out)

    def end(what, step):
        """End the job once it has come so far; submit the stage again."""
        nonlocal job
        wait_for(lambda: reached(out) >= step)
        what()
        wait_for(lambda: job not in jobs())
        wait_for(lambda: not of_stage(out, "(trainers|ablation)"))
        assert not (out / "status.json").exists(), (out / "status.json").read_text()
        job = submit(out)

    end(lambda: subprocess.run(["scancel", job], check=True), 1)
    end(lambda: kill(of_stage(out, "trainers.parallel.worker")[-1]), 2)
    end(lambda: kill(of_stage(out, "ablation.runner.run")[0]), 3)
    wait_for(lambda: job not in jobs())
    assert status(out)["state"] == "ok", (out / "log.txt").read_text()
    assert status(out)["attempt"] == 4
