"""The stage that is a command: what it gets, how it ends, what it leaves, and that nothing of it outlives its stage."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ablation.contract.code import code_files
from ablation.contract.process import is_locked
from ablation.contract.status import read_state
from ablation.runner import command_guard
from tests.repository import ROOT
from tests.workflow.project import Project, wait_for

pytestmark = pytest.mark.slow  # each test starts processes

KEY = "0123456789abcdef"
WRITE = """
import csv, json, pathlib, sys, yaml
config, out, seed = yaml.safe_load(open(sys.argv[1])), pathlib.Path(sys.argv[2]), int(sys.argv[3])
print("it says", config)
rows = [("step", "train/loss")] + [(step, 1 / (step + 1)) for step in range(config["steps"])]
csv.writer(open(out / "metrics.csv", "w")).writerows(rows)
items = [("item", "subset", "name", "value")] + [(i, s, "correct", (i + seed) % 2) for i in range(4) for s in "ab"]
csv.writer(open(out / "items.csv", "w")).writerows(items)
"""


@dataclasses.dataclass
class Command:
    """A stage below a folder whose name has a space and a quote."""

    root: Path

    def write(self, words, program="", collect=(), config=None, **more):
        (self.root / "program.py").write_text(program)
        self.out.mkdir(parents=True)
        plan = {"stage": "toy.train", "key": KEY, "seed": 1, "entry": "ablation.runner.command", "model": None}
        plan |= {"reads": [], "config": config or {}, "abort_rules": more.pop("abort_rules", [])}
        outside = [self.root / "results"]
        plan["code"] = code_files(["program.py"], self.root, outside, words)._asdict()
        command = {"words": words, "collect": [{"place": ".", **entry} for entry in collect]}
        command |= {"reading": json.dumps(collect)[:80], "steps": None, "time_limit": None}
        command |= {"reader": "ablation.cli.collected", **more}
        (self.out / "config.json").write_text(json.dumps(plan | {"command": command}))
        return self

    @property
    def out(self):
        return self.root / "results" / "it's" / KEY

    def words(self, *more):
        place = ["--config", str(self.out / "config.json"), "--out", str(self.out)]
        return [sys.executable, "-m", "ablation.runner.run", *place, *more]

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CUDA_", "ABLATION_"))}
        ours = {"PYTHONPATH": str(ROOT), "ABLATION_LEASES": str(self.root / "leases"), "ABLATION_GRACE": "0.4"}
        return kept | ours | more

    def run(self, *more, **environment):
        shown = {"capture_output": True, "text": True, "timeout": 900}
        done = subprocess.run(
            self.words(*more), cwd=self.root, env=self.environment(**environment), check=False, **shown
        )
        return done, json.loads((self.out / "status.json").read_text()) if (self.out / "status.json").exists() else None

    def start(self, *more):
        return subprocess.Popen(self.words(*more), cwd=self.root, env=self.environment(), stderr=subprocess.DEVNULL)

    def log(self):
        return (self.out / "log.txt").read_text()


@pytest.fixture
def command(tmp_path):
    root = tmp_path / "a b"
    root.mkdir()
    return Command(root)


PYTHON = ["{python}", "program.py"]


def test_a_command_that_ends_well(command):
    words = [*PYTHON, "{config}", "{output}", "{seed}"]
    command.write(words, WRITE, [{"reader": "metrics"}, {"reader": "items"}], {"steps": 3, "like": "1e-5"})
    done, status = command.run("--gpus", "1", "--threads", "2", ABLATION_FAKE_GPUS="2")
    assert done.returncode == 0, done.stderr
    assert (status["state"], status["attempt"], status["devices"], status["device"]) == ("ok", 1, 1, "cpu"), status
    assert "it says {'steps': 3, 'like': '1e-5'}" in command.log()
    rows = pq.read_table(command.out / "metrics.parquet").to_pylist()
    losses = {(step, "train/loss"): 1 / (step + 1) for step in range(3)}
    final = {(2, f"test/{subset}/correct"): 0.5 for subset in ("a", "b", "mean")}
    assert {(row["step"], row["name"]): row["value"] for row in rows} == losses | final
    items = pq.read_table(command.out / "items.parquet").to_pylist()
    assert len(items) == 8
    assert {"item": "0", "subset": "a", "protocol": "test", "name": "correct", "value": 1.0} in items
    assert read_state(command.out, KEY).state == "ok"
    assert not (command.out / "progress.json").exists()


def test_it_gets_devices_threads_inputs_and_a_folder_of_its_own(command):
    names = "('CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS')"
    program = f"import os, sys\nprint('got', sys.argv[1:], [os.environ[name] for name in {names}])"
    command.write([*PYTHON, "{devices}", "{input:model}", "{input:data}/x y", "{out}"], program)
    before = {}
    for name, plan in {"model": {"command": {}}, "data": {}}.items():
        before[name] = command.root / name
        before[name].mkdir()
        (before[name] / "config.json").write_text(json.dumps(plan))
        (before[name] / "status.json").write_text(json.dumps({"state": "ok", "stage": "toy.x", "key": "1"}))
    inputs = [word for name in before for word in ("--input", f"{name}={name}")]
    _, status = command.run("--gpus", "2", "--threads", "3", *inputs, ABLATION_FAKE_GPUS="4")
    assert status["state"] == "ok", status
    assert status["devices"] == 2
    folders = [str(before["model"] / "output"), str(before["data"] / "x y"), str(command.out / "output")]
    assert f"got {['2', *folders]} ['0,1', '3']" in command.log()


@pytest.mark.parametrize(
    ("words", "program", "reason"),
    [
        (PYTHON, "print('a'); raise ValueError('lr < 0')", "RuntimeError: exit status 1: ValueError: lr < 0"),
        (PYTHON, "import os; os.abort()", "the command was ended by SIGABRT"),
        (["no-such-program", "x"], "", "exit status 127: error: no-such-program: No such file or directory"),
    ],
)
def test_a_command_that_does_not_end_well_says_why_and_exits_0(command, words, program, reason):
    done, status = command.write(words, program).run()
    assert done.returncode == 0
    assert status["state"] == "failed"
    assert reason in status["reason"]


def test_a_command_that_is_ended_from_outside_leaves_no_status_and_goes_on_in_its_folder(command):
    program = """
import os, pathlib, sys
mark = pathlib.Path(sys.argv[1]) / "checkpoint"
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), 9)
"""
    command.write([*PYTHON, "{output}"], program)
    done, status = command.run()
    assert (done.returncode, status) == (74, None), done.stderr
    assert "ended by SIG" in done.stderr
    done, status = command.run()
    assert (status["state"], status["attempt"]) == ("ok", 2)


FAMILY = """
import os, signal, subprocess, sys, time, pathlib
out = pathlib.Path(sys.argv[1])
def stubborn(name, session):
    program = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w'); time.sleep(1000)"
    return subprocess.Popen([sys.executable, "-c", program, str(out / name)], start_new_session=session)
stubborn("child", False)
stubborn("daemon", True)
if os.fork() == 0:  # an orphan
    os.setsid()
    if os.fork() == 0:
        (out / "orphan").touch()
        time.sleep(1000)
    os._exit(0)
os.wait()
signal.signal(15, lambda *_: (print("saves", flush=True), (out / "asked").touch(), sys.exit(0)))
while len(list(out.iterdir())) < 3:
    time.sleep(0.02)
(out / "ready").touch()
"""


def alive(command):
    return Project(command.root).processes()


def guards(command):
    return Project(command.root).processes(command_guard.__file__)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_it_outlives_its_stage_and_the_folder_is_held_meanwhile(command, number):
    command.write([*PYTHON, "{output}"], FAMILY + "time.sleep(1000)")
    running = command.start()
    wait_for((command.out / "output" / "ready").exists)
    running.send_signal(number)
    assert running.wait(900) == -number
    samples = []
    while not samples or alive(command):
        samples.append((is_locked(command.out), {*alive(command)} - {*guards(command)}))  # alive after it was held
        time.sleep(0.02)
    assert len(samples) > 1, "the stubborn ones have their time"
    assert all(held for held, left in samples if left)
    assert not is_locked(command.out)
    assert (command.out / "output" / "asked").exists()
    assert "saves" in command.log().splitlines()


def test_what_it_leaves_running_is_ended(command):
    command.write([*PYTHON, "{output}"], FAMILY)
    _, status = command.run()
    assert status["state"] == "ok"
    assert alive(command) == []
    assert "the command left 3 processes running, which the tracker ended" in command.log()


def test_it_ends_with_its_parent(command):
    command.write([*PYTHON, "{output}"], FAMILY + "time.sleep(1000)")
    script = "import subprocess, sys, time, os\nsubprocess.Popen([*sys.argv[1:], '--parent', str(os.getpid())])\n"
    script += "time.sleep(1000)"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *command.words()], cwd=command.root, env=command.environment()
    )
    wait_for((command.out / "output" / "ready").exists)
    parent.kill()
    parent.wait()
    wait_for(lambda: not alive(command))


def test_its_guard_finds_packages_where_its_runner_does(command, tmp_path):
    """In a user's own packages, say, where `pip install --user` puts them."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "psutil.py").write_text(f"""
import os, sys
print("own packages of", os.path.basename(sys.argv[0]), flush=True)
sys.path.remove({str(own)!r})
del sys.modules["psutil"]
import psutil
""")
    program = "import subprocess; subprocess.Popen(['sleep', '1000'])"
    _, status = command.write(PYTHON, program).run(PYTHONPATH=f"{ROOT}:{own}")
    assert status["state"] == "ok"
    assert "own packages of command_guard.py" in command.log()


def test_a_time_limit_ends_it(command):
    command.write(PYTHON, "import time; time.sleep(1000)", time_limit=0.01)
    _, status = command.run()
    assert (status["state"], status["reason"]) == (
        "failed",
        "RuntimeError: the command exceeded its time_limit of 0.01 min and was ended; raise the limit",
    )
    assert alive(command) == []


def test_an_abort_rule_is_about_what_it_logged(command):
    rule = {"metric": "loss", "severity": "abort", "diagnosis": "not finite", "remedy": "lower lr"}
    program = "import sys; open(sys.argv[1] + '/metrics.csv', 'w').write('step,loss\\n0,1\\n1,nan\\n')"
    command.write([*PYTHON, "{output}"], program, [{"reader": "metrics"}], abort_rules=[rule])
    _, status = command.run()
    assert status["state"] == "diverged"
    assert status["reason"].startswith("loss = nan at step 1")


ITEMS = "open('found.csv', 'w').write('item,value\\na,1\\nb,0\\n')"


@pytest.mark.parametrize(
    ("collect", "program", "reason"),
    [
        ({"reader": "metrics"}, "", "output: holds none of metrics.csv, metrics.jsonl, metrics.parquet; let"),
        ({"reader": "items", "place": "e*.csv"}, "", "collect = 'items': contains nothing to read"),
        (
            {"reader": "metrics", "columns": 5},
            "open('metrics.csv', 'w').write('step,a\\n1,2\\n')",
            "collect: AttributeError: ",
        ),
    ],
)
def test_files_that_cannot_be_read_fail_the_stage(command, collect, program, reason):
    program = f"import os, sys; os.chdir(sys.argv[1]); {program}"
    _, status = command.write([*PYTHON, "{output}"], program, [collect]).run()
    assert status["state"] == "failed"
    assert reason in status["reason"], status["reason"]


def test_everything_that_does_not_fit_is_said_at_once(command):
    program = """
import os, sys
os.chdir(sys.argv[1])
open("history.csv", "w").write("step,loss\\n1,2\\n")
open("predictions.csv", "w").write("id,label,prediction,right,task\\n7,1,2,0,a\\n8,1,1,1,b\\n")
"""
    _, status = command.write([*PYTHON, "{output}"], program, [{"reader": "metrics"}, {"reader": "items"}]).run()
    assert status["reason"].startswith("RuntimeError: collect: output: holds none of metrics.csv")
    assert "`{metrics: history.csv}`; and output: holds none of items.csv" in status["reason"]


def test_what_a_finished_command_left_is_read_again_without_running_it(command):
    program = f"import os, sys; os.chdir(sys.argv[1]); print('it runs'); {ITEMS}"
    command.write([*PYTHON, "{output}"], program, [{"reader": "items", "place": "items.csv"}])
    failed = command.run()[1]
    assert failed["state"] == "failed"
    plan = json.loads((command.out / "config.json").read_text())

    def again(reading, place):
        plan["command"] |= {"collect": [{"reader": "items", "place": place}], "reading": reading}
        (command.out / "config.json").write_text(json.dumps(plan))
        return command.run()[1], command.log().count("it runs")

    right, runs = again("right", "found.csv")
    assert (right["state"], right["reading"], runs) == ("ok", "right", 1)
    assert right["wall_s"] > json.loads((command.out / "ended.json").read_text())["seconds"] > 0
    assert pq.read_table(command.out / "items.parquet").num_rows == 2
    assert again("right", "found.csv")[0]["ended"] == right["ended"]  # taken over
    wrong, runs = again("wrong", "nowhere.csv")
    assert (wrong["state"], wrong["reading"], runs) == ("failed", "wrong", 1)
    assert not (command.out / "items.parquet").exists()
    assert again("wrong", "nowhere.csv")[1] == 2  # a retry: the same readers still cannot read it, so it runs
    (command.out / "output" / "found.csv").write_text("item,value\na,1\n")
    assert again("right", "found.csv")[1] == 3  # its files are no longer those that it left


def test_children_that_nobody_waits_for_are_no_reason_to_wait(command):
    """A hundred zombies of its own, and a hundred orphans that have ended before it."""
    program = """
import os, pathlib, time
for n in range(200):
    if os.fork() == 0:
        if n % 2 and os.fork() == 0:
            time.sleep(0.02)
        os._exit(0)
own, guard, states = str(os.getpid()), str(os.getppid()), []
while states.count(["Z", own]) < 200 or sum(parent == guard for _, parent in states) > 1:  # the orphans, or this one
    states = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            states.append(path.read_text().rpartition(")")[2].split()[:2])
        except OSError:  # it has ended
            pass
print("zombies", states.count(["Z", own]), "of the guard", states.count(["Z", guard]))
"""
    _, status = command.write(PYTHON, program).run()
    assert status["state"] == "ok"
    assert "zombies 200 of the guard 0" in command.log()
    assert "left" not in command.log().replace("left_", "")


def test_a_changed_program_is_not_run(command):
    command.write(PYTHON, "print(1)")
    (command.root / "program.py").write_text("print(2)")
    done, status = command.run()
    assert (done.returncode, status) == (78, None)
    assert "program.py" in done.stderr


def test_progress_is_that_of_its_bar(command):
    program = """
import sys, time
for n in range(1, 4):
    print(f"\\r {33 * n}%|##   | {n}/3 [00:0{n}<00:02,  1.00it/s]", end="", flush=True)
    print(f"\\r 50%|##   | 5/9 [00:0{n}<00:02,  1.00it/s]", end="", flush=True)
    time.sleep(0.1)
while not __import__("os").path.exists("go on"):
    time.sleep(0.1)
"""
    command.write(PYTHON, program, config={"train": {"steps": 3}}, steps="train.steps")
    running = command.start()
    progress = command.out / "progress.json"
    wait_for(lambda: progress.exists() and json.loads(progress.read_text())["done"] == 3)
    assert json.loads(progress.read_text())["total"] == 3
    assert read_state(command.out).state == "running"
    (command.root / "go on").touch()
    running.wait(900)


ONCE = """
import os, pathlib, signal, sys
out = pathlib.Path(sys.argv[1])
if not (out / "again").exists():
    (out / "again").touch()
    (out / "items.csv").write_text("item,name,value\\na,correct,1\\n")
    for number in range(5_000):
        (out / f"{number:040}").touch()
    os.kill(os.getpid(), signal.SIGKILL)
(out / "done").touch()
if sys.argv[2] == "new":
    (out / "items.csv").write_text("item,name,value\\na,correct,0\\n")
"""


@pytest.mark.parametrize(("writes", "place"), [("new", "items.csv"), ("nothing", ".")])
def test_files_of_a_killed_attempt_are_not_the_results_of_the_next(command, writes, place):
    command.write([*PYTHON, "{output}", writes], ONCE, [{"reader": "items", "place": place}])
    _, status = command.run()
    assert status is None
    _, status = command.run()
    assert status["attempt"] == 2
    if writes == "new":
        assert status["state"] == "ok"
        assert pq.read_table(command.out / "items.parquet")["value"].to_pylist() == [0.0]
    else:
        assert status["state"] == "failed"
        assert "collect = 'items': contains only files from an earlier attempt" in status["reason"]


def test_code_that_is_edited_while_the_command_runs_is_no_result(command):
    command.write(PYTHON, "open('program.py', 'a').write('late = 1')\n")
    done, status = command.run()
    assert status is None
    assert done.returncode != 0
    assert "its code has changed since the stage was planned (program.py)" in done.stderr
