"""What the rules of the workflow are told of a job; tests/workflow starts Snakemake itself."""

import os
import sys
import threading
from types import SimpleNamespace as Some

import pytest

from ablation.cli.parser import build_parser
from ablation.contract.errors import TrackerError
from ablation.plan.jobs import Jobs
from ablation.plan.start import end_within, hold
from tests.ablation.plan.commands import build, finish

DEFAULTS = {"lsf_extra": "-gpu num={gpu}", "request_gpus": "{gpu}", "runtime_s": "{seconds}", "disk_mb": "10"}


def jobs_of(toy, *, dry_run=False, summary=False, nodes=None, defaults=(), main=True, plan=None, **asked):
    """The jobs of a `snakemake` call; nodes: of `--jobs`, where a scheduler runs them."""
    names = ("forceall", "forcerun", "until", "omit_from", "batch")
    workflow = Some(
        is_main_process=main,
        local_exec=nodes is None,
        touch=False,
        executor_plugin=Some(name="local" if nodes is None else "lsf"),
        output_settings=Some(dryrun=dry_run),
        execution_settings=None if summary else Some(),
        scheduling_settings=Some(max_jobs_per_timespan=100),
        deployment_settings=Some(deployment_method=()),
        resource_settings=Some(nodes=nodes, default_resources={k: Some(raw=v) for k, v in dict(defaults).items()}),
        dag_settings=Some(**{"rerun_triggers": ["mtime"], **dict.fromkeys(names), **asked}),
    )
    return Jobs(plan or build(toy, group_minutes=600, fork_server=False), workflow)


def first(jobs, id):
    return Some(key=next(stage.key for stage in jobs.plan.content.stages if stage.id == id))


def test_what_has_ended_is_left_out_unless_all_is_asked_for(toy):
    plan = jobs_of(toy).plan
    ended = plan.content.stages[0]
    finish(ended)
    assert set(jobs_of(toy, plan=plan).statuses(None)) == {stage.status for stage in plan.content.stages} - {
        ended.status
    }
    for everything in ({"forceall": True}, {"rerun_triggers": ["code"]}, {"main": False}):
        assert ended.status in jobs_of(toy, plan=plan, **everything).statuses(None)


@pytest.mark.parametrize(
    ("call", "starts"),
    [({}, 1), ({"dry_run": True}, 0), ({"summary": True}, 0), ({"nodes": 4}, 0), ({"main": False}, 0)],
)
def test_a_fork_server_is_started_once_for_stages_of_trainers_that_are_to_run_here(toy, monkeypatch, call, starts):
    started = []
    monkeypatch.setattr("ablation.plan.jobs.fork_server.start", started.append)
    plan = build(toy)
    jobs = jobs_of(toy, plan=plan, **call)
    for _ in range(2):
        jobs.statuses(None)
    assert started == ["trainers"] * (starts if sys.platform == "linux" else 0)
    for stage in plan.content.stages:
        finish(stage)
    jobs_of(toy, plan=plan, **call).statuses(None)
    assert len(started) == (starts if sys.platform == "linux" else 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd and Unix sockets")
def test_commands_have_a_server_without_torch_if_there_are_several(commands, monkeypatch):
    started = []
    monkeypatch.setattr("ablation.plan.jobs.fork_server.start", started.append)
    plan = build(commands)
    for stage in plan.content.stages[1:]:
        finish(stage)
    jobs_of(commands, plan=plan).statuses(None)
    assert started == []
    finish(plan.content.stages[1], "{}")
    jobs = jobs_of(commands, plan=plan)
    jobs.statuses(None)
    assert started == ["commands"]
    stage = plan.content.stages[0]
    assert "fork_client.py commands --config" in jobs.command_of(stage.id)(Some(key=stage.key), None)


def test_a_scheduler_is_asked_in_its_own_words_for_a_group_as_a_whole(toy):
    jobs = jobs_of(toy, nodes=4, defaults=DEFAULTS)
    wildcards = first(jobs, "toy.train")
    asked = {name: request(wildcards) for name, request in jobs.scheduler_request("toy.train").items()}
    members = [jobs.plan.stages[each] for each in jobs.groups["toy.train", wildcards.key].members]
    minutes = sum(stage.resources.runtime for stage in members)
    assert len(members) > 1
    assert asked == {"lsf_extra": "-gpu num=1", "request_gpus": 1, "runtime_s": 60 * minutes}
    evaluated = jobs.scheduler_request("toy.prepare")
    assert [evaluated[name](first(jobs, "toy.prepare")) for name in ("lsf_extra", "request_gpus")] == ["", 0]
    assert jobs.group_of("toy.train")(wildcards) == jobs.groups["toy.train", wildcards.key].name
    assert jobs_of(toy).group_of("toy.train")(wildcards) is None


def test_one_snakemake_holds_the_results_and_a_refused_start_leaves_no_trace(tmp_path):
    lock = tmp_path / "results/.lock"
    handle = hold(lock.parent)
    os.utime(lock, (5, 5))
    with pytest.raises(TrackerError, match="another snakemake is running here"):
        hold(lock.parent)
    os.close(handle)
    os.close(hold(lock.parent))
    assert lock.stat().st_mtime == 5  # it is dated when the start is not refused any more


def test_the_handler_of_sigterm_does_not_wait_in_the_main_thread():
    called = threading.Event()

    class Scheduler:
        def exit_gracefully(self, *_):
            called.set()

    end_within(1e8, Scheduler)
    Scheduler().exit_gracefully(15, None)
    assert called.wait(900)


def test_what_is_run_after_an_error_is_a_command_of_ours(toy, monkeypatch):
    """Its failure stops nothing and so would be seen by nobody."""
    ran: list[list[str]] = []
    monkeypatch.setattr("ablation.plan.jobs.subprocess.run", lambda words, check: ran.append(words))
    monkeypatch.setattr("ablation.plan.jobs.atexit.register", lambda *_: None)
    jobs = jobs_of(toy)
    jobs.render_what_is_there()
    parsed = [build_parser().parse_args(words[3:]) for words in ran]
    assert [words[3] for words in ran] == ["collect", "tables", "figures", "report"]
    assert {str(each.results) for each in parsed} == {str(jobs.plan.settings.results)}
