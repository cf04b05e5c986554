"""Whatever is killed, and whenever: the same rows in the end, no process left, no device given twice."""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests import warm
from tests.chaos import database
from tests.chaos.light import TRAIN, finish, fresh, light, real
from tests.workflow.project import kill, wait_for
from tests.workflow.smoke import first_two, one_argument


def kill_at_random(project, arguments, *, kills, seed, longest, victims):
    """Kill random processes at random moments until `kills` are dead; start Snakemake again whenever it ends."""
    chance, killed = random.Random(seed), 0
    process = project.start(*arguments)
    deadline = time.monotonic() + 3000
    try:
        while killed < kills:
            assert time.monotonic() < deadline, f"{killed} of {kills} kills"
            if process.poll() is not None:
                if process.returncode == 0:  # all done before its time: a random part again
                    for status in chance.sample(project.statuses(), len(project.statuses()) // 2):
                        status.unlink()
                process = project.start(*arguments)
            time.sleep(chance.uniform(0.1, longest))
            if found := victims(project, process):
                with suppress(ProcessLookupError):  # it ended meanwhile
                    kill(chance.choice(found))
                    killed += 1
        process.wait(timeout=3000)
    finally:
        process.kill()
    return killed


def trainers(project, process):
    return project.trainers()


def anything(project, process):
    """Snakemake itself, a trainer, or a command of the tracker."""
    return [] if process.poll() is not None else [process.pid, *project.trainers(), *project.processes("ablation")]


def assert_intact(project, undisturbed):
    database.assert_equal(project.folder / "results/tracker.duckdb", undisturbed.folder / "results/tracker.duckdb")
    assert not (project.folder / "double-leased").exists()
    wait_for(lambda: not project.processes())
    assert list(project.folder.glob("results/**/.*.tmp.*")) == []


def test_trainers_killed_at_random_moments_of_the_smoke_grid(tmp_path, long):
    if not long:
        pytest.skip(
            "`make chaos` runs it; here tests/trainers kill each trainer, and the next test what Snakemake runs"
        )
    arguments = ["--resources", "gpu=2", "--config", "scale=smoke", one_argument(first_two())]
    undisturbed, disturbed = real(tmp_path / "undisturbed"), real(tmp_path / "disturbed")
    finish(undisturbed, *arguments)
    assert kill_at_random(disturbed, arguments, kills=50, seed=7, longest=6.0, victims=trainers) == 50
    finish(disturbed, *arguments)
    assert_intact(disturbed, undisturbed)


def test_snakemake_or_whatever_runs_killed_at_random_moments(tmp_path, finished, long):
    disturbed = fresh(finished, tmp_path / "project")
    wanted = 40 if long else 4
    assert kill_at_random(disturbed, [], kills=wanted, seed=11, longest=4.0, victims=anything) == wanted
    wait_for(lambda: not disturbed.trainers())
    finish(disturbed)
    assert_intact(disturbed, finished)


TERMINATE_IN_LOCK = """
import signal

from snakemake.scheduling.job_scheduler import JobScheduler

finish_jobs = JobScheduler._finish_jobs

def terminate_and_finish(scheduler):
    if scheduler._tofinish:
        JobScheduler._finish_jobs = finish_jobs
        os.kill(os.getpid(), signal.SIGTERM)
    finish_jobs(scheduler)

JobScheduler._finish_jobs = terminate_and_finish
"""


def test_sigterm_ends_snakemake_also_where_its_own_handler_would_wait_for_itself(tmp_path, finished):
    disturbed = fresh(finished, tmp_path / "project")
    whole = disturbed.read("Snakefile")
    disturbed.write("Snakefile", whole + TERMINATE_IN_LOCK)  # while the main thread holds the scheduler's lock
    assert disturbed.start().wait(timeout=900) != 0
    wait_for(lambda: not disturbed.processes())
    assert 0 < len(disturbed.statuses()) < len(finished.statuses())
    disturbed.write("Snakefile", whole)
    finish(disturbed, attempts=1)  # the lock is free
    assert_intact(disturbed, finished)


def test_sigterm_waits_half_a_minute_for_what_runs(tmp_path, finished):
    disturbed = fresh(finished, tmp_path / "project")
    disturbed.edit("ablation/plan/start.py", "end_within(30,", "end_within(2,")  # a shorter half
    disturbed.edit("configs/studies/debias/_study.yaml", "pause: 0.05", "pause: 3000.0")
    process = disturbed.start()
    wait_for(lambda: len(list(disturbed.folder.glob("results/stages/debias/train/*/progress.json"))) == 2)
    process.terminate()
    assert process.wait(timeout=900) == 128 + 15
    wait_for(lambda: not disturbed.processes())


def test_many_runs_that_end_at_once(tmp_path, long):
    """All of them wait for one file, in as many processes; each row arrives."""
    runs = 32 if long else 8
    project = light(tmp_path / "project", seeds=runs, pause=0.0)
    gate = 'open(stage.out / "waits", "w").close()\n    while not os.path.exists("go"): time.sleep(0.01)\n'
    project.write("trainers/debias/train.py", TRAIN.replace("    write_json(", f"    {gate}    write_json("))
    for name in ("b", "c"):
        (project.folder / f"configs/studies/debias/{name}.yaml").unlink()
    environment = {**project.environment(), "ABLATION_FAKE_GPUS": str(runs)}
    words = ["--cores", str(runs), "--resources", f"gpu={runs}"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(warm.run, "snakemake", words, cwd=project.folder, env=environment)
        try:
            wait_for(lambda: len(list(project.folder.glob("results/stages/*/train/*/waits"))) == runs)
        finally:
            (project.folder / "go").touch()
        assert running.result().returncode == 0, running.result().stdout
    found = database.content(project.folder / "results/tracker.duckdb")
    losses = [row for row in found["metrics"] if row[2] == "'train/loss'"]
    assert len(losses) == runs * 20
    assert len({row[0] for row in losses}) == runs
    assert len(found["items"]) == runs * 4
    assert not (project.folder / "double-leased").exists()
    times = [json.loads(path.read_text()) for path in project.folder.glob("results/stages/*/train/*/status.json")]
    assert max(time["started"] for time in times) < min(time["ended"] for time in times)  # all at once, indeed
    wait_for(lambda: not project.processes())
