"""`serve`: who may ask, what is answered, when the page is drawn anew, and that the results stay as they are."""

import fcntl
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from contract.errors import TrackerError
from contract.stage_folder import DATABASE
from tests.simulate import Study, simulate, stage_dir, write_status
from tracker.cli.main import main
from tracker.serve import draw as draw_module
from tracker.serve import now as now_module
from tracker.serve import painter as painter_module
from tracker.serve.draw import draw
from tracker.serve.live import MARKER
from tracker.serve.now import Watcher
from tracker.serve.painter import Page, Painter
from tracker.serve.server import Server
from tracker.store.collect import collect, collect_apart
from tracker.store.database import Store

ROOT = Path(__file__).resolve().parents[3]
ATTACK = "<script>alert(1)</script>"
RUNNING = {("v2", 0): "running", ("v3", 0): "missing"}
TOY = Study(states=RUNNING)


@contextmanager
def locked(folder):
    """A runner of a stage."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture(autouse=True)
def _look_each_time(monkeypatch):
    monkeypatch.setattr(now_module, "RARELY", 0.0)
    monkeypatch.setattr(now_module, "SHARE", 1e9)


def progress(folder, **changed):
    content = {"done": 5, "total": 20, "unit": "steps", "started": time.time() - 10, "updated": time.time()}
    (folder / "progress.json").write_text(json.dumps(content | changed))


def fail_the_last(results):
    """End the last stage of the plan in another way than before."""
    stage = json.loads((results / "plan.json").read_text())["stages"][-1]
    write_status(Path(stage["dir"]), stage, "failed", "disk full")


class Asking:
    """A server of a results folder in a thread, its painter idle; `ask` is one request."""

    answers = True

    def __init__(self, results, every=30.0):
        self.watcher = Watcher(results)
        self.painter = Painter(results, self.watcher, every)
        self.server = Server(0, self.watcher, self.painter)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def ask(self, path="/", method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=10)
        connection.request(method, path, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        answer.body = answer.read()
        connection.close()
        return answer

    def text(self, path="/now"):
        answer = self.ask(path)
        assert answer.status == 200
        return answer.body.decode()

    def end(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.painter.end()


@pytest.fixture
def served(results):
    """Return a function that simulates the studies and serves them."""
    started = []

    def start(study=TOY):
        simulate(results, [study])
        started.append(Asking(results))
        return started[-1]

    yield start
    for asking in started:
        asking.end()


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A server for requests that change nothing."""
    folder = tmp_path_factory.mktemp("served")
    simulate(folder, [TOY])
    found = Asking(folder)
    yield found
    found.end()


# --- who may ask, and for what ------------------------------------------------------------------------------------


def test_it_answers_to_the_names_of_this_machine_whatever_the_port_of_a_tunnel(asking):
    for host in ("127.0.0.1:1", "localhost:8642", "LOCALHOST:99", "[::1]:8642", "localhost"):
        assert asking.ask(Host=host).status == 200, host


def test_a_name_of_another_site_that_leads_here_reads_nothing(asking):
    hosts = (
        "evil.example",
        "evil.example:8642",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "evil.example:localhost",
        "",
    )
    for host in hosts:
        for path in ("/", "/now", "/status.json"):
            answer = asking.ask(path, Host=host)
            assert answer.status == 403, host
            assert b"toy" not in answer.body


def test_it_listens_on_this_machine_alone(asking):
    assert asking.server.server_address[0] == "127.0.0.1"
    assert asking.server.url == f"http://127.0.0.1:{asking.server.server_port}/"


def test_nothing_can_be_sent(asking):
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = asking.ask("/", method=method, body="x=1")
        assert (answer.status, answer.getheader("Allow"), answer.will_close) == (405, "GET, HEAD", True), method


def test_no_path_names_a_file(asking):
    paths = (
        "/../plan.json",
        "/%2e%2e/plan.json",
        "/plan.json",
        "//etc/passwd",
        "/index.html/..",
        "/results/",
        "/now/x",
    )
    for path in (*paths, "http://127.0.0.1/", "now"):
        assert asking.ask(path).status == 404, path
    assert asking.ask("/now?x=../plan.json").body == asking.ask("/now").body


def test_head_tells_what_get_would_and_sends_nothing(asking):
    get, head = asking.ask(), asking.ask(method="HEAD")
    assert (head.status, head.body) == (200, b"")
    for name in ("ETag", "Content-Length", "Content-Type"):
        assert head.getheader(name) == get.getheader(name), name


def test_what_is_answered_may_not_be_framed_guessed_at_or_kept(asking):
    for path in ("/", "/now", "/status.json"):
        answer = asking.ask(path)
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert "frame-ancestors 'none'" in answer.getheader("Content-Security-Policy")
        assert answer.getheader("Cache-Control") == "no-cache"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert "Python" not in answer.getheader("Server")
    page = asking.text("/").replace("&#39;", "'")
    assert "connect-src 'self'" in page  # the policy in its head: no script but ours, which asks us alone
    assert "unsafe" not in page.partition("<style>")[0]


def test_a_large_page_is_compressed_for_who_can_read_it(asking, monkeypatch):
    monkeypatch.setattr(asking.painter, "page", Page("<p>" + "a" * 50_000, "</p>", "1", "12:00:00"))
    plain, small = asking.ask(), asking.ask(Accept_Encoding="gzip, br")
    assert small.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < 5_000


def test_a_port_that_is_taken_is_said_in_one_line(asking, results, capsys):
    taken = asking.server.server_port
    assert main(["serve", "--results", str(results), "--port", str(taken)]) == 2
    assert f"port {taken} cannot be used (address already in use)" in capsys.readouterr().err
    for words, said in ((["--port", "99999"], "port 99999 cannot be used"), (["--every", "nan"], "--every = nan")):
        assert main(["serve", "--results", str(results), *words]) == 2
        assert said in capsys.readouterr().err


# --- what runs now ------------------------------------------------------------------------------------------------


def test_what_has_not_changed_is_not_sent_again(served, results):
    asking = served()
    for path in ("/", "/now", "/status.json"):
        first = asking.ask(path)
        again = asking.ask(path, If_None_Match=first.getheader("ETag"))
        assert (again.status, again.body) == (304, b"")
    fail_the_last(results)
    fresh = asking.ask("/now", If_None_Match=first.getheader("ETag"))
    assert fresh.status == 200
    assert b"disk full" in fresh.body


def test_a_running_stage_is_told_with_its_steps_and_the_time_left_at_its_pace(served, results):
    asking = served()
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    with locked(folder):
        progress(folder)
        [stage] = json.loads(asking.text("/status.json"))["running"]
        html = asking.text()
    assert (stage["stage"], stage["run"], stage["done"], stage["total"]) == ("toy.train", "v2 seed 0", 5, 20)
    assert stage["left"] == pytest.approx(30.0, abs=1)  # 15 steps at half a step a second
    assert stage["silent"] is None
    assert "Running now" in html
    assert '<progress max="20.0" value="5.0" aria-label="toy.train v2 seed 0">' in html
    assert "5 of 20 steps" in html
    assert "about 30 s" in html or "about 29 s" in html
    assert "Running now" not in asking.text()  # the runner has gone, and its progress is of then


def test_what_is_not_known_of_the_time_left_is_said(served, results):
    asking = served()
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    cases = {
        "not known before its first step": {"done": 0},
        "no step for 2 min": {"updated": -130.0, "started": -140.0},
        "longer than its pace said": {"updated": -31.0, "started": -41.0},
        "about 48 min": {"updated": -130.0, "started": -1130.0},  # 200 s a step: two minutes without one are nothing
    }
    with locked(folder):
        for words, written in cases.items():
            times = {name: time.time() + value for name, value in written.items() if name != "done"}
            progress(folder, **written | times)
            assert words in asking.text()


def test_a_stage_that_was_resumed_goes_at_the_pace_that_was_seen(results, monkeypatch):
    plan = simulate(results, [TOY])
    folder, watcher, begun = stage_dir(plan, "toy", "v2", 0, "train"), Watcher(results), time.time()
    with locked(folder):
        progress(folder, done=900, total=1000, started=begun - 1, updated=begun)
        [first] = watcher.now().running
        assert first.left == pytest.approx(100 / 900, abs=0.2)  # all that is known yet
        monkeypatch.setattr(now_module.time, "time", lambda: begun + 20)
        progress(folder, done=910, total=1000, started=begun - 1, updated=begun + 20)
        [second] = watcher.now().running
        assert second.left == pytest.approx(180.0)  # 90 steps at half a step a second
        progress(folder, done=1, total=1000, started=begun + 5, updated=begun + 20)  # another attempt
        [third] = watcher.now().running
        assert third.left == pytest.approx(999 * 15)


def test_text_of_a_failed_stage_stays_text(served, results):
    asking = served(Study(states={("v1", 1): "failed"}))
    stage = next(s for s in json.loads((results / "plan.json").read_text())["stages"] if s["label"] == "v1 seed 1")
    write_status(Path(stage["dir"]), stage, "failed", f"{ATTACK}\u202egnp")
    html = asking.text()
    assert ATTACK not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "\u202e" not in html
    assert "2 stages did not end well" in html  # it, and the one that it blocks


def test_long_lists_are_cut_and_counted(served, results, monkeypatch):
    monkeypatch.setattr(now_module, "_MOST", 1)
    asking = served(Study(states={("v1", 0): "running", ("v1", 1): "running"}))
    folders = [stage_dir(results / "plan.json", "toy", "v1", seed, "train") for seed in (0, 1)]
    with locked(folders[0]), locked(folders[1]):
        html = asking.text()
    assert html.count('<th scope="row">v1 seed') == 1
    assert "And 1 more." in html


def test_where_nothing_is_planned_yet_the_page_says_so_and_waits(results):
    asking = Asking(results)
    try:
        assert "Nothing has been planned yet" in asking.text("/")
        assert asking.watcher.now().results is None
        simulate(results)
        assert asking.watcher.now().results is not None
        (results / "plan.json").write_text("{")
        assert "not a plan" in asking.text()
    finally:
        asking.end()


# --- drawing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def painted(results, monkeypatch):
    """A painter whose drawings are `drawings`' texts, or errors, in turn; it is not started, `turn` is one."""
    monkeypatch.setattr(painter_module, "RETRY", 0.0)
    simulate(results, [TOY])
    painter = Painter(results, Watcher(results), 0.0)
    painter.drawings = []

    def paint():
        found = painter.drawings.pop(0)
        if isinstance(found, str):
            (Path(painter._folder.name) / "page.html").write_text(found)
            return ""
        return str(found[0])

    monkeypatch.setattr(painter, "_paint", paint)
    yield painter
    painter.end()


def turn(painter):
    """What the thread does once."""
    painter._ended.set()
    painter._ended.wait = lambda _: True
    painter._ended.is_set = iter([False, True]).__next__
    painter._run()
    del painter._ended.is_set, painter._ended.wait


def test_it_is_drawn_anew_only_where_something_has_changed(painted, results):
    painted.drawings = [f"one{MARKER}", f"two{MARKER}"]
    turn(painted)
    turn(painted)
    turn(painted)
    assert painted.page.before == "one"
    fail_the_last(results)
    turn(painted)
    assert painted.page.before == "two"
    assert painted.drawings == []


def test_curves_of_a_running_stage_are_a_change(painted, results):
    folder = stage_dir(results / "plan.json", "toy", "v2", 0, "train")
    painted.drawings = [f"one{MARKER}", f"two{MARKER}"]
    with locked(folder):
        turn(painted)
        progress(folder, done=6)  # progress alone is no change of the results
        turn(painted)
        assert painted.page.before == "one"
        (folder / "metrics.parquet").write_bytes(b"more")
        turn(painted)
    assert painted.page.before == "two"


def test_nobody_looks_so_nothing_is_drawn(painted):
    painted._asked -= 1000
    turn(painted)
    assert painted.page.version == ""
    painted.drawings = [f"one{MARKER}"]
    painted.asked()
    turn(painted)
    assert painted.page.before == "one"


def test_a_drawing_that_fails_leaves_the_last_good_page_says_so_and_is_tried_again(painted, results):
    painted.drawings = [f"one{MARKER}", ["tracker.duckdb: disk full"], f"three{MARKER}"]
    turn(painted)
    good = painted.page
    fail_the_last(results)
    turn(painted)
    assert (painted.page, painted.problem) == (good, "tracker.duckdb: disk full")
    turn(painted)
    assert (painted.page.before, painted.problem) == ("three", "")


def test_drawing_takes_a_tenth_of_a_processor_at_most(painted, monkeypatch):
    spent = iter([100.0, 107.0])
    monkeypatch.setattr(painter_module, "_children", lambda: next(spent))
    painted.drawings = [f"one{MARKER}"]
    begun = time.monotonic()
    turn(painted)
    assert painted._due == pytest.approx(begun + 70.0, abs=5)


def tree(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def rows(database):
    with Store(database) as store:
        names = ("metrics", "items", "health", "stages", "runs", "results", "variants", "run_stages", "weights")
        return {name: store.rows(f"SELECT * FROM {name} ORDER BY ALL")[1] for name in names}


def test_a_database_apart_holds_the_same_and_leaves_no_trace(results, tmp_path):
    simulate(results, [Study(states={("v1", 1): "failed"})])
    before = tree(results)
    collect_apart(results, tmp_path / "apart.duckdb")
    assert tree(results) == before
    assert rows(tmp_path / "apart.duckdb") == rows(collect(results).database)


def test_a_running_stage_has_its_curves_there_and_no_results(results, tmp_path):
    plan = simulate(results, [TOY])
    folder = stage_dir(plan, "toy", "v2", 0, "train")
    shutil.copy(stage_dir(plan, "toy", "v2", 1, "train") / "metrics.parquet", folder)
    broken = stage_dir(plan, "toy", "v3", 0, "train")
    progress(broken)
    (broken / "metrics.parquet").write_bytes(b"half of")
    query = (
        "SELECT state, count(*) FROM curves JOIN runs USING (study, variant, seed) WHERE variant = 'v2' GROUP BY ALL"
    )
    with locked(folder), locked(broken):
        collect_apart(results, tmp_path / "apart.duckdb")
        with Store(tmp_path / "apart.duckdb") as store:
            assert dict(store.rows(query)[1]) == {"ok": 60, "running": 60}
            assert store.rows("SELECT DISTINCT seed FROM results WHERE variant = 'v2'")[1] == [(1,)]
            assert store.rows("SELECT count(*) FROM stages WHERE state = 'running'")[1] == [(2,)]
        with Store(collect(results).database) as store:
            assert dict(store.rows(query)[1]) == {"ok": 60}


def test_the_page_is_drawn_beside_the_results_or_from_their_own_database_once_it_is_whole(
    results, tmp_path, monkeypatch
):
    plan = simulate(results, [TOY])
    folder = stage_dir(plan, "toy", "v2", 0, "train")
    used = []
    monkeypatch.setattr(draw_module, "render", lambda store, live: used.append(store.path.parent) or live.marker)
    own = tmp_path / "own"
    own.mkdir()
    collect(results)
    with locked(folder):
        draw(results, own, 30.0)
    draw(results, own, 30.0)
    fail_the_last(results)
    draw(results, own, 30.0)  # the grid has gone on
    shutil.rmtree(results / "stages")
    draw(results, own, 30.0)  # moved here without its stages
    assert used == [own, results, own, results]


def test_the_process_draws_a_page_that_asks_its_server(results, tmp_path):
    plan = simulate(results, [TOY])
    for variant in ("v0", "v1"):
        folder = stage_dir(plan, "toy", variant, 0, "evaluate")
        items = pd.read_parquet(folder / "items.parquet", columns=["item", "subset", "protocol"])
        items.assign(prompt="", response=f"{variant} said it", reference="").to_parquet(folder / "samples.parquet")
    before = tree(results)
    painter = Painter(results, Watcher(results), 30.0)
    try:
        assert painter._paint() == ""
        painter._take(painter_module.datetime.now())
        assert "connect-src 'self'" in painter.page.before.replace("&#39;", "'")
        assert '<noscript><meta http-equiv="refresh" content="30"></noscript>' in painter.page.before
        assert "Simulated study toy" in painter.page.after
        words = re.sub("<[^>]+>", "", painter.page.after)  # what differs is marked
        assert "v1 said it" in words  # they are looked for beside the database, which is elsewhere
        assert tree(results) == before
        (results / "plan.json").write_text("{")
        assert "not a plan" in painter._paint()
    finally:
        painter.end()


def test_the_command_ends_cleanly(results, tmp_path):
    simulate(results, [Study(variants=2, seeds=1)])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "tracker", "serve", "--results", str(results), "--port", "0"]
    started = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = started.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    assert list(scratch.iterdir()) != []
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=20)
    assert started.returncode == 0, said
    assert "Traceback" not in said
    assert list(scratch.iterdir()) == []


def test_a_place_where_no_server_can_be_is_no_traceback(results):
    watcher = Watcher(results)
    painter = Painter(results, watcher, 30.0)
    with pytest.raises(TrackerError, match="port -1 cannot be used"):
        Server(-1, watcher, painter)
    painter.end()
    assert not (results / DATABASE).exists()
