"""Where a result comes from is enough to find the code again."""

import json

from ablation.runner.provenance import describe_tree, write_provenance
from tests.ablation.plan.test_dirty_tree import git


def test_a_dirty_tree_is_described_with_its_diff(tmp_path):
    assert describe_tree(tmp_path) == {"commit": None, "dirty": None, "untracked": None, "diff": None}
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "first")
    clean = describe_tree(tmp_path)
    assert len(clean["commit"]) == 40
    assert (clean["dirty"], clean["diff"], clean["untracked"]) == (False, "", [])
    (tmp_path / "a.py").write_text("x = 2\n")
    (tmp_path / "new.py").write_text("")
    dirty = describe_tree(tmp_path)
    assert dirty["dirty"] is True
    assert dirty["untracked"] == ["new.py"]
    assert "-x = 1\n+x = 2" in dirty["diff"]


def test_inputs_are_named_by_their_keys(tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    (above / "status.json").write_text(json.dumps({"state": "ok", "stage": "assets", "key": "ab12"}))
    out = tmp_path / "out"
    out.mkdir()
    write_provenance(out, {"model": above}, ["run.py", "--out", "x"])
    found = json.loads((out / "provenance.json").read_text())
    assert found["inputs"]["model"]["key"] == "ab12"
    assert found["argv"] == ["run.py", "--out", "x"]
    assert (found["git"]["diff_file"] is not None) == (out / "diff.patch").exists()


def test_of_two_installed_versions_the_imported_one_is_named(tmp_path, monkeypatch):
    for place, version in (("first", "1.0"), ("second", "2.0")):
        folder = tmp_path / place / "shadowed-0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: shadowed\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path / place)  # so that `second` is found first
    write_provenance(tmp_path, {}, [])
    assert json.loads((tmp_path / "provenance.json").read_text())["packages"]["shadowed"] == "2.0"
