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
ROOT_EVALUATED = ("--until", "debias_evaluate", "--config", "variant=a")


@pytest.fixture(scope="module")
def faulty(slurm, tmp_path_factory):
    """A grid that goes through everything, the same grid run here undisturbed, and the jobs of the former by name.

    The root's run is there already. Two jobs hold both devices when Snakemake is killed. The next one submits both runs
    again. One job ends before its second starts; the other is cancelled while its second waits for it, the second is
    cancelled as well, and the third runs out of time.
    """
    grid = Grid.create(tmp_path_factory.mktemp("faulty") / "grid", *ROOT_EVALUATED, hold=("orphan", "late"))
    local = Grid(grid.copy(tmp_path_factory.mktemp("local") / "grid").folder)
    first = grid.submit("--config", "group_minutes=30")
    orphan, ended = grid.held("orphan"), grid.held("late")
    kill(first.pid)
    first.wait()
    with grid.running("--config", "group_minutes=30"):
        grid.wait_for(lambda: len(jobs() - {orphan, ended}) == 2)
        grid.release("orphan")
        grid.wait_for(lambda: waiting(grid))
        scancel(ended)
        cancelled = grid.held("late", 2)
        scancel(cancelled)
        late = grid.held("late", 3)
        # Its limit was long enough for a machine with much to do; Slurm's least is a minute.
        subprocess.run(["scontrol", "update", f"JobId={late}", "TimeLimit=1"], check=True)
    local.snakemake()
    return grid, local, {"orphan": orphan, "ended": ended, "cancelled": cancelled, "late": late}


def scancel(job):
    subprocess.run(["scancel", job], check=True)


def jobs():
    """Return the ids of the jobs in the queue, running or not."""
    found = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def logs_of(grid):
    """Return what the scheduler's own logs say that are kept, by job."""
    return {path.stem: path.read_text() for path in grid.folder.glob(".snakemake/slurm_logs/**/*.log")}


def waiting(grid):
    return any("waiting for process" in text for text in logs_of(grid).values())


def test_two_jobs_at_most_and_never_one_device_for_two(faulty):
    """A second user of a device fails (grid.py), and so would its variant."""
    grid, *_ = faulty
    uses = [line.split() for line in grid.read("devices/uses").splitlines()]
    assert {device for _, device, _ in uses} == {"0", "1"}  # those of gres.conf: both were used
    assert all(visible == device for _, device, visible in uses)  # and the trainer sees the one that its job was given
    assert len({job for job, _, _ in uses}) == len(uses) == 5  # two variants, one of them four times


def test_jobs_of_a_killed_snakemake_are_neither_lost_nor_run_twice(faulty):
    grid, _, named = faulty
    assert grid.attempts()["orphan"] == 1
    assert "attempt 1" in (grid.trained()["orphan"] / "log.txt").read_text()
    assert (grid.trained()["orphan"] / "held-1").read_text() == named["orphan"]
    assert not jobs()


def test_a_cancelled_job_and_a_late_one_are_retried_and_resume(faulty):
    grid, _, named = faulty
    texts = logs_of(grid)
    assert {job for job, text in texts.items() if "DUE TO TIME LIMIT" in text} == {named["late"]}
    stopped = {named[name] for name in ("ended", "cancelled", "late")}
    assert {job for job, text in texts.items() if "CANCELLED" in text} == stopped
    assert grid.attempts() == {"a": 1, "orphan": 1, "late": 4}
    folder = grid.trained()["late"]
    for attempt, log in enumerate(("log.attempt-1.txt", "log.attempt-2.txt", "log.attempt-3.txt", "log.txt"), start=1):
        text = (folder / log).read_text()
        assert f"attempt {attempt}" in text
        assert (f"resumed after step {attempt}" in text) == (attempt > 1)


def test_logs_arrive(faulty):
    grid, _, named = faulty
    for stage in grid.statuses():
        assert "attempt" in (stage.parent / "log.txt").read_text()
    # The scheduler's own logs of jobs that failed, or that nobody waited for, stay; the others go.
    assert set(logs_of(grid)) == set(named.values())


def test_short_stages_of_one_run_are_one_job_which_is_run_again_as_a_whole(faulty):
    grid, *_ = faulty
    assert len(grid.statuses()) == 1 + 2 * 3
    submitted = set(re.findall(r"SLURM jobid (\d+)", grid.log()))
    assert len(submitted) == 2 + 2 + 2  # each run; each by the second Snakemake; one of them twice again


def test_the_report_is_the_local_one(faulty):
    grid, local, _ = faulty
    assert report(grid.folder) == report(local.folder)


def test_a_job_on_the_cluster_neither_locks_nor_plans(faulty):
    """Only the Snakemake that the user started holds the results; otherwise no job could run beside it."""
    grid, *_ = faulty
    assert "another snakemake is running here" not in grid.log()
    assert "Nothing to be done" in grid.snakemake().stdout  # the local profile finds all of it


def test_cluster_generic_with_the_commands_of_slurm(slurm, tmp_path):
    grid = Grid.create(tmp_path / "grid", *PREPARED, hold=("d",))
    with grid.running(*TRAINED, profile="cluster-generic"):
        scancel(grid.held("d"))
        grid.held("d", 2)
        grid.release("d")
    assert grid.attempts() == {"a": 1, "d": 2}
    devices = {tuple(line.split()[1:]) for line in grid.read("devices/uses").splitlines()}
    assert devices == {("0", "0"), ("1", "1")}


def test_a_run_of_the_smoke_grid_with_the_real_trainers(slurm, tmp_path):
    grid = Grid(real(tmp_path / "grid").folder)
    words = ("--config", "scale=smoke", "studies=[debias]", "variant=baseline", "group_minutes=60")
    grid.snakemake(*PREPARED, *words)
    with grid.running("--until", "debias_evaluate", *words):
        pass
    found = {path.parts[-3]: json.loads(path.read_text())["state"] for path in grid.statuses()}
    assert found == dict.fromkeys(("assets", "prepare", "train", "evaluate"), "ok")


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
    grid = Grid.create(tmp_path / "grid")  # with a job that asks for no device before it
    with_ranks(grid, "gpu: 2")
    with grid.running(*TRAINED, "--config", "variant=a"):
        pass
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


def test_two_ranks_end_with_scancel(slurm, tmp_path):
    """Within seconds, without a status, and the next job goes on from the checkpoint.

    What else ends them (tests/trainers/parallel) needs no scheduler.
    """
    out = write(tmp_path, pause=1.0)
    job = submit(out)
    wait_for(lambda: reached(out) >= 1)
    scancel(job)
    wait_for(lambda: job not in jobs())
    wait_for(lambda: not of_stage(out, "(trainers|ablation)"))
    assert not (out / "status.json").exists(), (out / "status.json").read_text()
    job = submit(out)
    wait_for(lambda: job not in jobs())
    assert status(out)["state"] == "ok", (out / "log.txt").read_text()
    assert status(out)["attempt"] == 2
