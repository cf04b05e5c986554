"""The fork server: a stage that is forked is what a new process would be, and whatever is killed leaves nothing behind.

The test process stands for Snakemake: it starts one server for most tests, which ends with them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest

from ablation.runner import fork_client, fork_server
from ablation.runner.fork_client import address_of
from tests.ablation.plan.test_alone import is_free
from tests.simulate import editing
from tests.trainers.toy_stage import CONFIG, ROOT, TRAINER, command, environment, status, write_stage
from tests.workflow.project import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd and Unix sockets")]

CLIENT = fork_client.__file__
SNAKEMAKE = "import subprocess, sys, os; from ablation.runner import fork_server; server = fork_server.start()"
SNAKEMAKE += "; stage = [*sys.argv[1:], str(os.getpid())]; "
LOOK = """
import json, os, resource, signal, sys
import torch


def run(stage):
    print("said", flush=True)
    seen = {"argv": sys.argv[0], "folder": os.getcwd(), "path": sys.path, "threads": torch.get_num_threads()}
    seen |= {"environment": dict(os.environ), "umask": os.umask(0), "main": sys.modules["__main__"].__spec__.name}
    seen |= {"signals": [str(signal.getsignal(number)) for number in (2, 15)], "group": os.getpgid(0)}
    seen |= {"limits": resource.getrlimit(resource.RLIMIT_CORE), "files": sorted(map(int, os.listdir("/proc/self/fd")))}
    seen |= {"deterministic": torch.get_deterministic_debug_mode(), "tasks": len(os.listdir("/proc/self/task"))}
    seen |= {"project": sorted(name for name in sys.modules if name.split(".")[0] in ("trainers", "ablation"))}
    (stage.out / "seen.json").write_text(json.dumps(seen))
    if stage.config.mode == "leave":
        os._exit(7)
"""


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """Where the stages' modules are; and the environment, which is the same for all."""
    folder = tmp_path_factory.mktemp("toys")
    (folder / "toy_config.py").write_text(CONFIG)
    (folder / "toy_trainer.py").write_text(TRAINER)
    (folder / "toy_look.py").write_text(LOOK)
    return folder


@pytest.fixture
def stage(toys, tmp_path):
    def make(name="stage", entry="toy_trainer", **config):
        out = write_stage(tmp_path / name, **config)
        plan = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(plan | {"entry": entry}))
        return out

    return make


def words(out, *extra, threads="1", parent=None):
    """The command by which Snakemake starts a stage."""
    alone = command(out, "--threads", threads, *extra, "--parent", str(parent or os.getpid()))
    return [sys.executable, "-I", "-S", CLIENT, "trainers", *alone[3:]]


def surroundings(toys, **values):
    kept = environment(toys / "out", ABLATION_FAKE_GPUS="2", **values)
    kept.pop("PYTEST_CURRENT_TEST", None)  # a server serves one environment
    return kept


def forked(out, toys, *extra, **values):
    return subprocess.run(
        words(out, *extra), env=surroundings(toys, **values), capture_output=True, text=True, timeout=900, check=False
    )


def alone(out, toys, *extra):
    whole = [*command(out, "--threads", "1", *extra), "--parent", str(os.getpid())]
    return subprocess.run(whole, env=surroundings(toys), capture_output=True, text=True, timeout=900, check=False)


def start(out, toys, parent=None):
    return subprocess.Popen(words(out, "--gpus", "1", parent=parent), env=surroundings(toys), stderr=subprocess.PIPE)


def process_of(out):
    return int((out / ".lock").read_text().split()[0])


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_of(process):
    return Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


@pytest.fixture(scope="module", autouse=True)
def server(toys):
    """Start the server, again if it was killed; return its process."""
    started = []

    def start_server():
        if not started or started[-1].poll() is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "environ", surroundings(toys))
                patch.chdir(ROOT)
                started.append(fork_server.start())
        return started[-1].pid

    start_server()
    return start_server


def server_of(parent):
    """The process that serves a Snakemake."""
    words = ["-m", "ablation.runner.fork_server", "--parent", str(parent)]
    running = psutil.process_iter(["cmdline"])  # of a zombie it is empty
    return next((each.pid for each in running if (each.info["cmdline"] or [])[1:5] == words), None)


def metrics(out):
    return pd.read_parquet(out / "metrics.parquet")


def test_the_same_bits_with_and_without(toys, stage):
    outs = [stage(name) for name in ("forked", "again", "alone")]
    for out, run in zip(outs, (forked, forked, alone), strict=True):
        done = run(out, toys)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert done.stderr.splitlines()[0] == "    toy.train  v8 seed 1   started"
        assert status(out)["state"] == "ok"
        assert "chatter of C code" in (out / "log.txt").read_text()
    first, again, plain = (metrics(out).value.tolist() for out in outs)
    assert first == again == plain
    other = stage("other", seed=2)
    assert forked(other, toys).returncode == 0
    assert metrics(other).value.tolist() != first
    provenance = [json.loads((out / "provenance.json").read_text()) for out in outs]
    assert provenance[0]["packages"] == provenance[2]["packages"]
    assert provenance[0]["hardware"] == provenance[2]["hardware"]
    assert {"cpu_s", "memory_mb"} <= status(outs[0]).keys()


def test_a_fork_sees_what_a_new_process_sees(toys, stage):
    seen = []
    old = os.umask(0o027)
    try:
        for name, run in (("forked", forked), ("alone", alone)):
            out = stage(name, entry="toy_look", mode=name)
            assert run(out, toys).returncode == 0
            assert status(out)["state"] == "ok", status(out)["reason"]
            seen.append(json.loads((out / "seen.json").read_text()))
    finally:
        os.umask(old)
    seen[1]["environment"].pop("_", None)
    seen[0]["environment"].pop("_", None)
    assert seen[0].pop("tasks") == 1
    assert seen[1].pop("tasks") <= 2  # Arrow's allocator has one where nobody forks
    for key in seen[0]:
        assert seen[0][key] == seen[1][key], key
    assert seen[0]["umask"] == 0o027


def test_code_is_loaded_anew_in_each_fork(toys, stage):
    out = stage("before")
    assert forked(out, toys).returncode == 0
    text = (toys / "toy_trainer.py").read_text()
    (toys / "toy_trainer.py").write_text(text.replace("weight.square()", "(2 * weight).square()"))
    try:
        edited = stage("after")
        assert forked(edited, toys).returncode == 0
    finally:
        (toys / "toy_trainer.py").write_text(text)
    losses = [metrics(o).query("name == 'train/loss'").value.tolist() for o in (out, edited)]
    assert losses[1] == pytest.approx([4 * loss for loss in losses[0]])
    refused = stage("refused")
    with editing(refused / "config.json") as plan:
        plan["code"]["text"], plan["code"]["files"]["ablation/runner/stage.py"] = "other", "other"
    assert forked(refused, toys).returncode == 78


def test_stages_run_side_by_side_on_devices_of_their_own(toys, stage):
    outs = [stage(str(number), pause=3000.0) for number in range(3)]
    clients = [start(out, toys) for out in outs]
    wait_for(lambda: sum((out / "checkpoint/state.json").exists() for out in outs) == 2)
    for out in outs:
        (out / "hurry").touch()
    for client in clients:
        assert client.wait(timeout=900) == 0
    spans = [(status(out)["started"], status(out)["ended"]) for out in outs]
    assert max(begun for begun, _ in spans[:2]) < min(ended for _, ended in spans)
    assert {(out / "threads").read_text() for out in outs} == {"1 '0'", "1 '1'"}


@pytest.mark.parametrize("victim", ["client", "stage", "server"])
def test_what_is_killed_leaves_nothing_and_the_next_goes_on(toys, stage, victim, server):
    out = stage(pause=3000.0, steps=6)
    client = start(out, toys)
    wait_for((out / "checkpoint/state.json").exists)
    process = process_of(out)
    assert process != client.pid
    assert command_of(process)[1:4] == [b"-m", b"ablation.runner.run", b"--config"]  # what `ps` shows
    os.kill({"client": client.pid, "stage": process, "server": server()}[victim], signal.SIGKILL)
    wait_for(lambda: not is_running(process))
    (out / "hurry").touch()
    if victim == "server":  # nobody is left to ask: the client runs it itself
        assert client.wait(timeout=900) == 0
    else:
        assert client.wait(timeout=900) == (-9 if victim == "client" else 128 + 9)
        assert is_free(out / ".lock")
        assert all(map(is_free, (toys / "leases").glob("*.lock")))
        (out / "log.txt").unlink()  # as Snakemake does
        assert forked(out, toys).returncode == 0
    server()
    assert not is_running(process)
    assert (status(out)["state"], status(out)["attempt"]) == ("ok", 2)
    assert "resumed after step" in (out / "log.txt").read_text()
    assert "chatter" in (out / "log.attempt-1.txt").read_text()
    whole = stage("whole", steps=6)
    assert forked(whole, toys).returncode == 0
    pd.testing.assert_frame_equal(metrics(whole), metrics(out), check_exact=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_stage_and_client_at_once(toys, stage, number):
    """Even if they were started in the background of a shell, which lets them ignore interrupts."""
    out = stage(pause=3000.0)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = start(out, toys)
    signal.signal(signal.SIGINT, before)
    wait_for((out / "checkpoint/state.json").exists)
    process = process_of(out)
    assert os.getpgid(process) == os.getpgid(client.pid)  # what a terminal sends reaches both
    client.send_signal(number)
    assert client.wait(timeout=900) in (-number, 128 + number)
    wait_for(lambda: not is_running(process))
    assert not (out / "status.json").exists()


def test_a_killed_snakemake_takes_stage_and_server_with_it(toys, stage):
    out = stage(pause=3000.0)
    line = [sys.executable, "-c", f"{SNAKEMAKE}subprocess.run(stage)"]
    parent = subprocess.Popen([*line, *words(out)[:-1]], env=surroundings(toys))
    wait_for((out / "checkpoint/state.json").exists)
    process, server, address = process_of(out), server_of(parent.pid), address_of(parent.pid, "trainers")
    assert server is not None
    connected(address).close()
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_running(process) and not is_running(server))
    with pytest.raises(ConnectionRefusedError):
        connected(address)
    assert is_free(out / ".lock")


def test_what_a_fork_cannot_be_is_run_alone(toys, stage):
    """Libraries have read their environment and counted their threads, and may have been replaced since."""
    for threads, values, installed in (("2", {}, ()), ("1", {"OTHER": "value"}, ()), ("1", {}, ["toy-2.0.dist-info"])):
        out = stage(f"{threads} {values} {installed}", pause=3000.0)
        for name in installed:
            (toys / name).mkdir()
        whole, around = words(out, threads=threads), surroundings(toys, **values)
        client = subprocess.Popen(whole, env=around, stderr=subprocess.PIPE)
        wait_for(lambda out=out: (out / "checkpoint/state.json").exists())
        assert process_of(out) == client.pid
        (out / "hurry").touch()
        assert client.wait(timeout=900) == 0
        assert (out / "threads").read_text().startswith(threads)
        for name in installed:
            (toys / name).rmdir()


def connected(address):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    return connection


def test_a_server_that_cannot_fork_is_started_once(toys, stage, tmp_path):
    broken = tmp_path / "broken"
    (broken / "sacrebleu").mkdir(parents=True)
    began = broken / "began"
    text = f"open({str(began)!r}, 'a').write('x')\nraise SystemExit(1)\n"  # the stage does without
    (broken / "sacrebleu/__init__.py").write_text(text)
    script = f"{SNAKEMAKE}sys.exit(subprocess.call(stage) or subprocess.call(stage))"
    values = surroundings(toys) | {"PYTHONPATH": f"{broken}:{toys}:{ROOT}"}
    out = stage()
    whole = [sys.executable, "-c", script, *words(out)[:-1]]
    done = subprocess.run(whole, env=values, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0
    assert "the server cannot fork (SystemExit: 1)" in done.stderr
    assert (status(out)["state"], began.read_text()) == ("ok", "x")


def test_an_address_of_another_user_is_not_trusted(monkeypatch):
    """Whoever is at the other end would get the environment, and could run anything."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address := f"\0test-{os.getpid()}")
        listener.listen(1)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        assert fork_client.ask(address, []) == (None, "")
        other, _ = listener.accept()
        assert other.recv(10) == b""
