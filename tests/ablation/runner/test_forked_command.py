"""A command whose stage is a fork of the grid's second server: what it leaves, what it costs, and what is killed."""

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from ablation.contract.process import is_locked
from ablation.runner import fork_client, fork_server
from tests.ablation.runner.test_command import FAMILY, PYTHON, WRITE, Command, alive
from tests.workflow.project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd and Unix sockets")]


class Forked(Command):
    """A stage that Snakemake, for which the test process stands, starts through the client."""

    def words(self, *more):
        alone = super().words(*("--threads", "2", "--wait", "1", *more, "--parent", str(os.getpid())))
        return [sys.executable, "-I", "-S", fork_client.__file__, "commands", *alone[3:]]

    def environment(self, **more):
        kept = super().environment(**more)
        kept.pop("PYTEST_CURRENT_TEST", None)  # a server serves one environment
        return kept


@pytest.fixture
def server(tmp_path):
    """Start the server as the stage's folder has it; return its process."""
    root = tmp_path / "a b"
    root.mkdir()
    forked = Forked(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", forked.environment())
        patch.chdir(root)
        started = fork_server.start("commands")
    yield started
    started.kill()
    started.wait()
    wait_for(lambda: not alive(forked))


@pytest.fixture
def command(server, tmp_path):
    return Forked(tmp_path / "a b")


def test_it_leaves_the_same_for_less(command, tmp_path):
    words = [*PYTHON, "{config}", "{output}", "{seed}"]
    other = Command(tmp_path / "alone")
    other.root.mkdir()
    rows = []
    for each in (command, other):
        each.write(words, WRITE, [{"reader": "metrics"}, {"reader": "items"}], {"steps": 3})
        done, status = each.run()
        assert (done.returncode, status["state"]) == (0, "ok"), done.stderr
        assert "without the fork server" not in done.stderr
        rows.append([pq.read_table(each.out / f"{name}.parquet").to_pylist() for name in ("metrics", "items")])
    assert rows[0] == rows[1]
    assert len(rows[0][0]) == 6
    provenance = json.loads((command.out / "provenance.json").read_text())
    assert (provenance["hardware"]["gpus"], provenance["hardware"]["threads"]) == ([], None)
    cost = [json.loads((each.out / "status.json").read_text())["cpu_s"] for each in (command, other)]
    assert cost[0] < min(1, cost[1] * 0.7), cost  # 0.4 s, of which the program takes 0.1


@pytest.mark.parametrize("victim", ["client", "stage", "server"])
def test_whatever_is_killed_nothing_of_it_goes_on_and_the_next_runs(command, server, victim):
    command.write([*PYTHON, "{output}"], FAMILY + "time.sleep(0 if (out / 'hurry').exists() else 1000)")
    client = command.start()
    wait_for((command.out / "output" / "ready").exists)
    process = int((command.out / ".lock").read_text().split()[0])
    assert process not in (client.pid, server.pid)
    (command.out / "output" / "hurry").touch()
    os.kill({"client": client.pid, "stage": process, "server": server.pid}[victim], signal.SIGKILL)
    if victim == "server":  # nobody is left to ask: the client runs it itself, once the first has ended
        assert client.wait(timeout=900) == 0
    else:
        assert client.wait(timeout=900) == (-9 if victim == "client" else 128 + 9)
        wait_for(lambda: not is_locked(command.out))
        assert {*alive(command)} <= {server.pid}
        done = subprocess.run(command.words(), cwd=command.root, env=command.environment(), check=False)
        assert done.returncode == 0
    assert (command.out / "output" / "asked").exists()
    status = json.loads((command.out / "status.json").read_text())
    assert (status["state"], status["attempt"]) == ("ok", 2)
