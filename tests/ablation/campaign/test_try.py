"""A loop's calls: what each exit code says, what is in the ledger, and what a killed or second caller leaves."""

import json
import os
import shlex
import subprocess
import sys
import time

import pytest

from ablation.campaign.runs import on_another_scale
from tests.ablation.campaign.conftest import git
from tests.repository import ROOT


def test_a_gain_is_kept_and_verified_and_a_loss_is_reset(loop):
    said = loop.begin("--tag")
    assert "score, larger is better; 0 trials; the standard deviation between runs is" in said
    assert "no file is locked, so a trial may change how" in said
    status, out, _ = loop.attempt(5, "wider")
    assert (status, "step 1: verified, " in out, "against " in out) == (0, True, True)
    assert git(loop.folder, "rev-parse", "verified/1") == git(loop.folder, "rev-parse", "HEAD")
    status, out, _ = loop.attempt(3, "narrower")
    assert (status, "step 2: reset, " in out) == (10, True)
    git(loop.folder, "reset", "--hard", "-q", "HEAD~1")
    status, out, _ = loop.attempt(5.0, "the same by another name")
    assert status == 10  # the text of `gain` is another, so it is a fresh draw, and within the noise
    rows = [line.split("\t") for line in (loop.folder / "results.tsv").read_text().splitlines()]
    assert rows[0] == ["commit", "score", "memory_gb", "status", "description"]
    assert [(row[3], row[4]) for row in rows[1:]][:3] == [
        ("keep", "baseline"),
        ("keep", "wider"),
        ("discard", "narrower"),
    ]


def test_the_campaigns_files_survive_what_a_loop_does_with_git(loop):
    loop.begin()
    git(loop.folder, "add", "-A")
    assert git(loop.folder, "status", "--porcelain") == ""
    git(loop.folder, "clean", "-fdq")
    assert len(loop.ledger()) == 4


def test_equal_code_is_known_whatever_it_is_called(loop):
    loop.write("model.py", "WIDTH = 1\n")
    loop.commit()
    loop.begin()
    loop.write("model.py", "WIDTH = 2\n")
    loop.commit("wider")
    assert loop.attempt()[0] == 10
    lines = len(loop.ledger())
    loop.write("model.py", '"""Another name."""\n\nWIDTH  =  2  # once more\n')
    loop.commit("something else")
    status, out, _ = loop.attempt()
    assert (status, "known: trial 1 ran the same code (reset, " in out) == (10, True)
    assert len(loop.ledger()) == lines
    git(loop.folder, "reset", "--hard", "-q", "HEAD~2")
    assert "the champion or the baseline has the same code" in loop.attempt()[1]


def test_uncommitted_changes_are_tried_and_named(loop):
    loop.begin()
    loop.write("gain", "5")
    loop.write("new.txt", "x")
    status, out, _ = loop.attempt()
    assert (status, out.startswith("the trial includes uncommitted changes: gain, new.txt\n")) == (0, True)
    assert git(loop.folder, "log", "--format=%s") == "baseline"


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("echo error: no memory; exit 3", 12, "exit status 3"),
        ("echo training", 12, "printed no score"),
        ("echo score: nan", 12, "printed score = nan"),
        ("echo score: high", 12, "which is not a number"),
        ("echo score: 9; echo score: 9", 13, "refused: the command printed score 2 times"),
        ("echo '{\"score\": 9}'; echo score: 9", 13, "refused: the command printed score 2 times"),
        ("echo score: 9", 13, "refused: three seeds gave the same value"),
        ("echo '{\"score\": true}'", 12, "printed score = True, which is not a number"),
        ("kill -9 $$", 11, "again: the command was ended by SIGKILL"),
    ],
)
def test_a_value_that_does_not_count(loop, script, status, said):
    loop.begin()
    loop.write("train.sh", script)
    loop.commit()
    found, out, _ = loop.attempt()
    assert (found, said in out) == (status, True), out


def test_a_crash_shows_the_last_lines(loop):
    loop.begin()
    loop.write("train.sh", "seq 30; exit 1")
    loop.commit()
    _, out, _ = loop.attempt()
    assert "  | 11\n" in out
    assert "  | 10\n" not in out
    assert loop.attempt()[0] == 12  # known


def test_json_lines_and_files_hold_the_metric_too(loop):
    loop.write("train.sh", loop.folder.joinpath("train.sh").read_text() + "echo '{\"score\": '$seed'}' > out.json; ")
    loop.write("out.json", '{"score": 99}')
    loop.commit()
    loop.begin("--metric-file", "out.json")
    values = [json.loads(line)["value"] for line in loop.ledger()[1:]]
    assert values == [0, 1, 2]
    loop.write("train.sh", "true")
    loop.write("out.json", '{"score": 100}')
    loop.commit()
    status, out, _ = loop.attempt()
    assert (status, "did not write out.json" in out) == (12, True)


def test_a_run_that_is_much_too_short_did_not_train(loop, monkeypatch):
    loop.write("train.sh", "sleep 2.5\n" + loop.folder.joinpath("train.sh").read_text())
    loop.commit()
    loop.begin("--min-seconds", 1.5)
    loop.write("train.sh", "echo score: 9.$2")
    loop.commit()
    status, out, _ = loop.attempt()
    assert (status, "a run must take at least 1.5 s" in out) == (13, True)


def test_a_time_limit_ends_a_trial(loop):
    loop.begin("--time-limit", 0.01)
    loop.write("train.sh", "sleep 60")
    loop.commit()
    status, out, _ = loop.attempt()
    assert (status, "exceeded its time_limit of 0.01 min" in out) == (12, True)


def test_what_is_locked_may_not_change(loop):
    loop.begin("--locked", "evaluate.py")
    said = {
        "evaluate.py": "the commit changes evaluate.py, which is locked",
        "evaluate/__init__.py": "the commit adds evaluate",
        "campaign.toml": "campaign.toml",
    }
    for name, reason in said.items():
        loop.write(name, "x")
        git(loop.folder, "add", "-f", name)
        git(loop.folder, "commit", "-qm", name)
        status, out, _ = loop.attempt()
        assert (status, f"refused: {reason}" in out) == (13, True), out
        if name != "campaign.toml":
            git(loop.folder, "reset", "--hard", "-q", "HEAD~1")


def test_a_held_out_command_measures_verifications_alone(loop):
    held = loop.folder.joinpath("train.sh").read_text().replace("g + x", "2 * g + x")
    loop.write("held/out.sh", held)
    loop.commit()
    loop.begin("--verify-run", "sh held/out.sh")
    assert sum(json.loads(line).get("verify", False) for line in loop.ledger()) == 3
    loop.write("train.sh", "test -e held/out.sh && exit 1\n" + loop.folder.joinpath("train.sh").read_text())
    status, out, _ = loop.attempt(5)
    assert status == 0, out
    assert "measured +10.00 [" in out
    loop.write("held/out.sh", "echo score: 9")
    loop.commit()
    assert "changes held/out.sh, which is locked" in loop.attempt()[1]


def test_a_percentage_among_shares_is_refused(loop):
    loop.write("gain", "0.6")
    loop.commit()
    loop.begin()
    loop.write("train.sh", loop.folder.joinpath("train.sh").read_text().replace("g + x", "100 * (g + x)"))
    loop.commit()
    status, out, _ = loop.attempt()
    assert (status, "and the baseline's 0.6 are not on the same scale; print all values as shares" in out) == (
        13,
        True,
    ), out


@pytest.mark.parametrize(
    ("value", "known", "is_other"),
    [
        (25, [0.7, 0.72], True),  # a percentage that fell to less than half
        (0.9, [30, 31], True),  # an error that tripled, as a share
        (70, [0.7], True),
        (0.007, [0.7], True),  # a hundredth
        (5, [0.7], False),  # a metric without an end
        (0, [70], False),
        (1.2, [300], False),
        (400, [0.7], False),
        (14, [8, 9], False),
        (35, [1e-6, 0.7], False),  # so far apart that nothing follows
    ],
)
def test_which_values_are_on_another_scale(value, known, is_other):
    assert on_another_scale(value, known) == is_other


@pytest.mark.parametrize("margin", ["nan", "-1", "0", "inf", "1e308"])
def test_a_margin_that_lets_anything_pass_is_refused(loop, margin):
    loop.begin()
    status, out, _ = loop.attempt(-5, "worse", "--claim", "not-worse", f"--margin={margin}")
    assert (status, "as large as the metric itself" in out) == (13, True), out


def test_a_hook_that_a_trial_left_is_not_run(loop):
    loop.begin()
    loop.write(".git/hooks/post-checkout", "#!/bin/sh\necho -9 > gain\n")
    (loop.folder / ".git/hooks/post-checkout").chmod(0o755)
    assert loop.attempt(5)[0] == 0


def test_a_simplification_is_not_worse(loop):
    loop.begin("--margin", 4)
    loop.write("evaluate.py", "")
    status, out, _ = loop.attempt(-0.01, "remove the evaluator", "--claim", "not-worse")
    assert (status, "equivalent within 4, by 4 fresh pairs" in out) == (0, True), out
    status, out, _ = loop.attempt(-3.9, "and more", "--claim", "not-worse")
    assert status == 10, out
    assert "wider than the margin of the campaign, 4" in loop.attempt(-9, "x", "--claim", "not-worse", "--margin", 5)[1]


def test_the_budget_ends_with_a_verification(loop):
    loop.begin("--budget", 1e-9)
    status, out, _ = loop.attempt(5)
    assert (status, out) == (13, "refused: the budget is used up; run `ablation campaign` for the report\n")


def test_the_ledger_is_a_chain(loop):
    loop.begin()
    loop.attempt(5)
    path = loop.folder / "campaign.jsonl"
    whole = path.read_text()
    for edited in (
        whole.replace('"value": 5', '"value": 6', 1),
        whole[: whole.rindex("\n", 0, -1) + 1],
        whole.replace("\n", "\n\n", 1),
    ):
        path.write_text(edited)
        status, _, err = loop.say("campaign")
        assert (status, "campaign.jsonl" in err, "edited" in err) == (2, True, True), err
    path.write_text(whole + '{"n": 99, "half a li')
    assert loop.say("campaign")[0] == 0
    assert loop.attempt(3)[0] == 10
    assert [json.loads(line)["n"] for line in loop.ledger()] == list(range(len(loop.ledger())))


def try_in_a_process(loop, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "ablation", "try", "--why", "change"],
        cwd=loop.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )


@pytest.mark.slow
def test_two_callers_at_once_take_turns(loop):
    loop.begin()
    loop.write("gain", "5")
    loop.commit()
    both = [try_in_a_process(loop, SLEEP="0.2") for _ in range(2)]
    answers = [(*process.communicate(), process.returncode) for process in both]
    assert sorted(out.startswith("known: ") for out, _, _ in answers) == [False, True]
    assert [status for _, _, status in answers] == [0, 0]
    assert sum(json.loads(line)["event"] == "trial" for line in loop.ledger()) == 1


def test_a_full_disk_leaves_the_ledger_as_it_was(loop, monkeypatch):
    loop.begin()
    loop.write("gain", "5")
    loop.commit()
    before = loop.ledger()
    write, calls = os.write, []

    def full(handle, data):
        if data.startswith(b'{"n"'):
            calls.append(write(handle, data[:10]))
            raise OSError(28, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(os, "write", full)
    status, out, err = loop.attempt()
    assert (status, out, "No space left" in err) == (11, "", True)
    assert loop.ledger() == before
    monkeypatch.undo()
    monkeypatch.chdir(loop.folder)
    assert loop.attempt()[0] == 0


def test_a_clock_that_goes_back_changes_nothing(loop, monkeypatch):
    loop.begin()
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert loop.attempt(5)[0] == 0
    assert loop.say("campaign")[0] == 0


def test_a_table_that_the_loop_writes_too_is_left_alone(loop):
    loop.begin()
    with (loop.folder / "results.tsv").open("a") as file:
        file.write("mine\t1\t0\tkeep\tby hand\n")
    _, _, err = loop.attempt(5)
    assert "results.tsv: left unchanged, because another program writes this file too" in err
    assert "by hand" in (loop.folder / "results.tsv").read_text()
    assert "wider" not in (loop.folder / "results.referee.tsv").read_text()


def test_another_machine_is_said(loop, monkeypatch):
    loop.begin()
    monkeypatch.setattr("ablation.campaign.trial.machine", lambda: "elsewhere (Z80)")
    assert "warning: this machine is elsewhere (Z80), but the campaign began on" in loop.attempt(5)[1]


def test_runs_of_one_value_claim_nothing(loop):
    loop.write("train.sh", "echo score: $(cat gain)")
    loop.commit()
    assert "data,\nbut nothing is claimed about other machines" in loop.begin()
    assert loop.attempt(0.5)[0] == 0
    assert loop.attempt(0.4)[0] == 10
    status, out, _ = loop.say("campaign", "verify")
    assert (status, "so there is no noise to test" in out) == (0, True)


def test_verify_on_request_and_the_report(loop):
    loop.begin()
    loop.attempt(1.2)
    said = loop.say("campaign", "verify")[1]
    assert "fresh pairs" in said or "nothing to verify" in said
    page = loop.folder / "page.html"
    status, out, _ = loop.say("campaign", "--html", page, "--json")
    told = json.loads(out)
    assert (status, told["command"], told["trials"]) == (0, "campaign", 1)
    assert told["runs"]["baseline"] == 3
    assert set(told["champions"]) == {"provisional", "verified"}
    text = page.read_text()
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--metric score:max", "--run: is missing"),
        ("--run 'sh train.sh' --metric score", "write score:max if larger is better, score:min if smaller is better"),
        ("--run 'sh train.sh' --metric x:max", "baseline failed: the command printed no x; correct the command"),
        ("--run \"sh -c 'exit 4'\" --metric x:max", "exit status 4"),
        ("--run 'sh train.sh' --metric score:max --seed-arg=--seed", "does not contain {seed}"),
        ("--run 'sh train.sh' --metric score:max --budget nan", "--budget = nan: is not a number above 0"),
        ("--run 'sh train.sh' --metric score:max --locked none.py", "--locked = 'none.py': is not in HEAD"),
        ("--run 'sh train.sh' --metric score:max --gpus=-1", "--gpus = -1: is not a valid number of devices"),
        ('--run "sh \'train" --metric score:max', "cannot be read as a command (No closing quotation)"),
    ],
)
def test_a_campaign_that_cannot_begin(loop, words, said):
    status, _, err = loop.say("campaign", "init", *shlex.split(words))
    assert (status, said in err) == (2, True), err


def test_no_repository_no_campaign_no_commit(loop, tmp_path_factory, monkeypatch):
    assert "the campaign has not been started; start a campaign" in loop.attempt(5)[2]
    monkeypatch.chdir(tmp_path_factory.mktemp("bare"))
    assert "is not in a git repository" in loop.say("try", "--why", "x")[2]
    subprocess.run(["git", "init", "-q"], check=True)
    assert "make a first commit" in loop.say("try", "--why", "x")[2]


def test_a_campaign_that_begins_anew_keeps_the_old_ledger(loop):
    loop.begin()
    old = loop.ledger()
    assert "had to be restarted" not in loop.begin("--locked", "evaluate.py")
    assert (loop.folder / "campaign-1.jsonl").read_text().splitlines() == old
    assert len(loop.ledger()) == 4


def test_a_baseline_is_a_commit(loop):
    loop.write("gain", "2")
    assert (
        "there are uncommitted changes (gain)" in loop.say("campaign", "init", "--run", "x", "--metric", "score:max")[2]
    )


@pytest.mark.slow
def test_the_examples_loop_around_a_proposer(loop, monkeypatch):
    """As its README says it; one gain of the first trials is so large that it is verified."""
    for path in (ROOT / "examples/campaign").glob("*.py"):
        loop.write(path.name, path.read_text(encoding="utf-8"))
    loop.commit("toy")
    words = ("--run", f"{sys.executable} train.py", "--metric", "val_loss", "--seed-arg", "--seed {seed}")
    assert loop.say("campaign", "init", *words)[0] == 0
    shim = loop.folder.parent / "bin/ablation"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m ablation "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    done = subprocess.run([sys.executable, "propose.py", "2"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "step 1: verified, " in done.stdout
    assert git(loop.folder, "log", "--format=%s").splitlines()[-2:] == ["toy", "baseline"]


def test_with_two_devices_two_runs_are_made_at_once(loop, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("ABLATION_FAKE_GPUS", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("ABLATION_LEASES", str(tmp_path_factory.mktemp("leases")))
    seen = tmp_path_factory.mktemp("seen")
    loop.write(
        "train.sh",
        f"echo $CUDA_VISIBLE_DEVICES > {seen}/$2\nsleep 0.5\n" + loop.folder.joinpath("train.sh").read_text(),
    )
    loop.commit()
    loop.begin()
    assert loop.attempt(5)[0] == 0
    assert {path.read_text().strip() for path in seen.iterdir()} == {"0", "1"}
    assert loop.say("campaign")[0] == 0
