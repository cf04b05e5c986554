"""The policy for uncommitted files, in a repository of its own."""

import json
import subprocess

import pytest

from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.plan.checks import check_trees, dirty_files
from ablation.plan.collected import COLLECTED
from ablation.plan.retry import states_of
from ablation.plan.start import prepare
from tests.ablation.plan.commands import finish
from tests.ablation.toy_study import Toy


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy study, committed; results and reports are not ignored."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    toy = Toy(root)
    (root / ".gitignore").write_text("__pycache__/\n")
    commit(toy)
    return toy


def commit(toy):
    if not (toy.root / ".git").exists():
        git(toy.root, "init", "-q")
    git(toy.root, "add", "-A")
    git(toy.root, "commit", "-q", "--allow-empty", "-m", "state")


def plan_with(toy, policy, **overrides):
    toy.study(**({} if policy is None else {"dirty_tree": policy}))
    commit(toy)
    return build_plan(load_settings(overrides, configs=toy.configs), root=toy.root)


def check(plan, root):
    return check_trees(plan, root, states_of(plan))


def end_all(plan):
    """End every stage; return the last."""
    for stage in plan.selected():
        finish(stage)
    return stage


def test_changed_new_and_removed_files_are_dirty_ignored_ones_are_not(toy):
    assert dirty_files(toy.root) == []
    toy.code("trainers/shared.py", "LIMIT = 4\n")
    toy.code("new folder/ä.py", "")
    toy.code("trainers/__pycache__/x.pyc", "")
    (toy.root / "trainers/objectives/b.py").unlink()
    assert dirty_files(toy.root) == ["new folder/ä.py", "trainers/objectives/b.py", "trainers/shared.py"]
    git(toy.root, "add", "-A")  # staged is not committed
    assert len(dirty_files(toy.root)) == 3
    assert dirty_files(toy.root / "new folder") == ["new folder/ä.py"]


def test_by_default_a_dirty_tree_is_a_warning_per_study(toy):
    plan = plan_with(toy, None)
    assert check(plan, toy.root) == []
    for name in "abcde":
        toy.code(f"{name}.py", "")
    [warning] = check(plan, toy.root)
    assert warning.startswith("toy: there are uncommitted files (a.py, b.py, c.py and 2 more), so no commit will ")
    assert "; commit or remove them, or set dirty_tree to allow in " in warning
    assert warning.endswith("_study.yaml")
    assert "\n" not in warning


def test_refuse_is_one_line_with_the_files_and_the_remedy(toy):
    plan = plan_with(toy, "refuse")
    assert check(plan, toy.root) == []
    toy.code("trainers/shared.py", "LIMIT = 4\n")
    with pytest.raises(ConfigError) as caught:
        check(plan, toy.root)
    text = str(caught.value)
    assert "_study.yaml: dirty_tree = 'refuse': there are uncommitted files (trainers/shared.py), " in text
    assert "the study toy does not start its 18 stages; commit or remove them, or set dirty_tree to warn" in text
    assert "\n" not in text


def test_only_a_study_with_stages_to_run_is_asked(toy):
    plan = plan_with(toy, "refuse")
    toy.code("new.py", "")
    last = end_all(plan)
    assert check(plan, toy.root) == []
    finish(last, "failed")
    assert check(plan, toy.root) == []  # what failed runs again only where that is asked for
    again = build_plan(load_settings({"retry": "failed"}, configs=toy.configs), root=toy.root)
    with pytest.raises(ConfigError, match="its 1 stage;"):
        check(again, toy.root)
    last.status.unlink()
    with pytest.raises(ConfigError, match="its 1 stage;"):
        check(plan, toy.root)


def test_a_stage_that_runs_again_since_its_files_are_damaged_counts(toy):
    plan = plan_with(toy, "refuse")
    toy.code("new.py", "")
    last = end_all(plan)
    (toy.root / "results" / COLLECTED).write_text(json.dumps({"corrupt": {last.key: "torn"}}))
    with pytest.raises(ConfigError, match="its 1 stage;"):
        prepare(plan, states_of(plan), toy.root)
