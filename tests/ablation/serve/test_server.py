"""`serve`: who may ask, and what is answered."""

import json
from pathlib import Path

import pytest

from ablation.cli.main import main
from ablation.serve.draw import ASKED, MARKER, PAGE
from tests.ablation.serve.asking import TOY, Asking, progress
from tests.simulate import locked, simulate, stage_dir, write_status

ATTACK = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "drawn").mkdir()
    simulate(folder / "results", [TOY])
    found = Asking(folder / "results", folder / "drawn")
    yield found
    found.end()


def test_it_answers_to_the_names_of_this_machine_whatever_the_port_of_a_tunnel(asking):
    for host in ("127.0.0.1:1", "localhost:8642", "LOCALHOST:99", "[::1]:8642", "[::1]", "localhost", "127.0.0.1"):
        assert asking.ask(Host=host).status == 200, host


def test_a_name_of_another_site_that_leads_here_reads_nothing(asking):
    others = "evil.example evil.example:8642 localhost.evil.example 127.0.0.1.nip.io evil.example:localhost"
    for host in (*others.split(), "[::1].evil.example", ""):
        for path in ("/", "/now"):
            answer = asking.ask(path, Host=host)
            assert answer.status == 403, host
            assert b"toy" not in answer.body


def test_it_listens_on_this_machine_alone(asking):
    assert asking.server.server_address[0] == "127.0.0.1"
    assert asking.server.url == f"http://127.0.0.1:{asking.server.server_port}/"


def test_nothing_can_be_sent(asking):
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = asking.ask("/", method=method, body="x=1")
        assert (answer.status, answer.will_close, b"toy" in answer.body) == (501, True, False), method


def test_no_path_names_a_file(asking):
    paths = "/../plan.json /%2e%2e/plan.json /plan.json /x //etc/passwd /index.html/.. /results/ /now/x now"
    for path in (*paths.split(), "http://127.0.0.1/"):
        assert asking.ask(path).status == 404, path
    assert asking.ask("/now?x=../plan.json").body == asking.ask("/now").body


def test_what_is_answered_may_not_be_framed_guessed_at_or_kept(asking):
    for path in ("/", "/now"):
        answer = asking.ask(path)
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert "frame-ancestors 'none'" in answer.getheader("Content-Security-Policy")
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert "Python" not in answer.getheader("Server")
    page = asking.text("/").replace("&#39;", "'")
    assert "connect-src 'self'" in page  # the policy in its head: no script but ours, which asks us alone
    assert "unsafe" not in page.partition("<style>")[0]


def test_a_port_that_is_taken_is_said_in_one_line(asking, tmp_path, capsys):
    taken = asking.server.server_port
    assert main(["serve", "--results", str(tmp_path), "--port", str(taken)]) == 2
    assert f"port {taken} cannot be used (address already in use)" in capsys.readouterr().err
    for words, said in ((["--port", "99999"], "port 99999 cannot be used"), (["--every", "nan"], "--every = nan")):
        assert main(["serve", "--results", str(tmp_path), *words]) == 2
        assert said in capsys.readouterr().err


def test_what_runs_now_stands_on_the_page_that_is_there_and_stays_text(tmp_path):
    results, drawn = tmp_path / "results", tmp_path / "drawn"
    drawn.mkdir()
    asking = Asking(results, drawn)

    def look():
        asking.server._due = 0.0
        return asking.text()

    try:
        assert "has no plan yet" in look()
        assert "It will appear here" in asking.text("/")
        assert (drawn / ASKED).exists()
        plan = simulate(results, [TOY])
        folder = stage_dir(plan, "toy", "v2", 0, "train")
        with locked(folder):
            progress(folder)
            assert "v2 seed 0: 5/20 steps, 30 s left" in look().replace("29 s", "30 s")
        stage = json.loads(plan.read_text())["stages"][-1]
        write_status(Path(stage["dir"]), stage, "failed", f"{ATTACK}\u202egnp")
        (drawn / PAGE).write_text(f"<p>before{MARKER}after")
        version, _, said = look().partition("\n")
        assert f"{ATTACK}\\u202egnp" in said
        page = asking.text("/")
        assert f'<p>before<section class="now" id="now" data-page="{version}">' in page
        assert ATTACK not in page
        plan.write_text("{")
        assert "not a plan" in look()
    finally:
        asking.end()
