"""A program that wants to win: what it edits, prints, kills and hides, and that none of it is kept."""

import json

import pytest

from ablation.campaign.ledger import Ledger
from ablation.campaign.repository import Repository
from ablation.campaign.runs import read_metric
from tests.ablation.campaign.conftest import TRAIN, git


def tried(loop, *words):
    loop.commit()
    return loop.attempt(None, "change", *words)


def test_the_target_of_a_locked_link_is_locked_too(loop):
    loop.write("real/score.py", "1")
    (loop.folder / "score.py").symlink_to("real/score.py")
    loop.commit()
    loop.begin("--locked", "score.py")
    loop.write("real/score.py", "2")
    status, out, _ = tried(loop)
    assert (status, "changes score.py, which is locked" in out) == (13, True), out


@pytest.mark.parametrize("edit", ["echo 2 > evaluate.py", "rm evaluate.py"])
def test_a_run_that_edits_what_measures_it_is_refused(loop, edit):
    loop.begin("--locked", "evaluate.py")
    loop.write("train.sh", f"{edit}\n{TRAIN}")
    loop.write("gain", "5")
    status, out, _ = tried(loop)
    assert (status, "the run changed evaluate.py, which is locked" in out) == (13, True), out


def test_a_module_that_a_locked_one_would_import_in_place_of_pythons_is_refused(loop):
    loop.write("tools/score.py", "import yaml\nfrom model import width\n")
    loop.commit()
    loop.begin("--locked", "tools/score.py")
    for name in ("tools/json.py", "tools/yaml/__init__.py", "tools/random.so"):
        loop.write(name, "")
        assert f"refused: the commit adds {name}, which would shadow a module" in tried(loop)[1]
        git(loop.folder, "reset", "--hard", "-q", "HEAD~1")
    for name in ("json.py", "tools/test/data", "tools/other.py"):
        loop.write(name, "")
    assert "refused" not in tried(loop)[1]


def test_locked_data_that_git_ignores_may_not_change_either(loop):
    loop.write(".gitignore", "data\n")
    loop.write("data/answers", "1")
    loop.commit()
    loop.begin("--locked", "data", "--link", "data")
    loop.write("train.sh", f"echo 2 > data/answers\n{TRAIN}")
    loop.write("gain", "5")
    status, out, _ = tried(loop)
    assert (status, "the run changed data, which is locked" in out) == (13, True), out
    status, _, err = loop.attempt(6)
    assert (status, "is locked but has changed since the campaign began; restore it" in err) == (2, True), err
    loop.write("data/answers", "1\n")
    assert "locked" not in loop.attempt()[1]


def test_objects_that_git_would_replace_are_what_they_were(loop):
    loop.write("other", "9")
    better = git(loop.folder, "hash-object", "-w", "other")
    git(loop.folder, "replace", git(loop.folder, "rev-parse", "HEAD:gain"), better)
    repository = Repository(loop.folder)
    repository.folder.mkdir()
    assert (repository.checkout("HEAD", 0, []) / "gain").read_text() == "0"


def test_a_held_out_command_of_two_words_is_hidden_and_locked(loop):
    loop.write("held/out.sh", TRAIN)
    loop.commit()
    said = loop.begin("--verify-run", "cd held && sh out.sh")
    assert "nothing is hidden" not in said
    loop.write("train.sh", f"test -e held/out.sh && exit 1\n{TRAIN}")
    loop.write("gain", "-5")
    assert tried(loop)[0] == 10
    loop.write("held/out.sh", "echo score: 9")
    assert "changes held, which is locked" in tried(loop)[1]


def test_a_run_that_ends_itself_where_it_is_verified_is_not_verified(loop):
    loop.begin()
    loop.write("train.sh", f"[ $2 -gt 5 ] && kill -9 $$\n{TRAIN}")  # seeds 3 to 5: trial and fresh runs
    loop.write("gain", "5")
    status, out, _ = tried(loop)
    assert (status, "0 fresh pairs did not show a gain" in out) == (10, True), out
    assert any("a verification counts this as a crash" in line for line in loop.ledger())


def test_a_worktree_that_a_run_turned_into_another_repository_is_made_anew(loop):
    loop.begin()
    loop.write("train.sh", f"echo gitdir: /nowhere > .git\n{TRAIN}")
    loop.write("gain", "5")
    assert tried(loop)[0] == 0


def test_a_folder_in_place_of_the_metrics_file_is_a_crash(loop):
    loop.write("train.sh", f"({TRAIN}) > out")
    loop.commit()
    loop.begin("--metric-file", "out")
    loop.write("train.sh", "mkdir out")
    assert tried(loop)[0] == 12


def test_a_hook_that_calls_it_and_a_second_worktree_are_no_other_campaign(loop, monkeypatch, tmp_path_factory):
    loop.begin()
    other = tmp_path_factory.mktemp("other") / "tree"
    git(loop.folder, "worktree", "add", "-q", str(other))
    assert Repository(other).folder != Repository(loop.folder).folder
    monkeypatch.setenv("GIT_DIR", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", "nowhere")
    assert Repository(loop.folder).snapshot()[1] == []


def test_a_ledger_that_was_removed_is_missed(loop):
    loop.begin()
    (loop.folder / "campaign.jsonl").unlink()
    assert "campaign.jsonl: was removed" in loop.attempt()[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"score": 1, "score": 9}', 2),
        ('{\n "score": 1,\n "score": 9\n}', 2),
        ('{"score": 1}\n{"score": 9}', 2),
        ("score: 1\rscore: 9", 2),
        ('{"other": {"score": 9}}', 0),
    ],
)
def test_a_metric_is_printed_once(text, found):
    value, why, refused = read_metric(text, "score")
    assert (value, refused) == (None, found > 1)
    assert ("2 times" if found else "printed no score") in why
    assert read_metric('{"score": -1.5e-3}', "score") == (-1.5e-3, "", False)


class Killed(BaseException):
    pass


def test_killed_while_it_writes_any_line_the_ledger_is_that_of_an_undisturbed_campaign(loop, monkeypatch):
    loop.begin()
    loop.write("gain", "5")
    loop.commit()
    files = [loop.folder / "campaign.jsonl", loop.folder / ".git/ablation-campaign/seal"]
    before = [file.read_bytes() for file in files]
    assert loop.attempt()[0] == 0
    whole = undated(loop)
    for file, content in zip(files, before, strict=True):
        file.write_bytes(content)
    for log in (loop.folder / ".git/ablation-campaign/logs").glob("[!b]*"):
        log.unlink()
    add, half = Ledger.add, set()

    def killed(ledger, event):
        if (line := json.dumps([event["event"], event.get("code"), event.get("seed")])) in half or "inter" in line:
            return add(ledger, event)
        half.add(line)
        with ledger.path.open("a") as file:
            file.write('{"n": ')
        raise Killed

    monkeypatch.setattr(Ledger, "add", killed)
    for _ in range(40):
        try:
            status = loop.attempt()[0]
            break
        except Killed:
            pass
    assert status == 0
    assert undated(loop) == whole
    assert len(half) > 10


def undated(loop):
    left_out = ("time", "seconds", "before", "commit", "n", "left")
    events = [json.loads(line) for line in loop.ledger()]
    return [{k: v for k, v in e.items() if k not in left_out} for e in events if e["event"] != "interrupted"]
