"""`ablation init` where nothing is in its way, and where something is."""

import re
from pathlib import Path

import pytest

from ablation.cli.main import main
from ablation.plan.start import WORKFLOW, build_plan, load_settings
from tests.ablation.typed import output, refused
from tests.repository import ROOT


def test_a_new_project_can_be_planned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "`cd 'a b/my' && snakemake --cores 2`" in output(capsys, "init", "a b/my")
    monkeypatch.chdir(tmp_path / "a b" / "my")
    assert sum(len(study.runs) for study in build_plan(load_settings()).content.studies) == 20
    assert (Path(".gitignore")).read_text().startswith("/results/")
    assert Path("profiles/default/config.yaml").is_file()
    assert not list(Path().rglob("__pycache__"))


def test_this_folder_is_the_default_and_other_files_stay(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert (tmp_path / "model.py").read_text() == "mine"
    assert (tmp_path / "Snakefile").is_file()


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        ("train.py", "my/train.py: already exists, and `init` does not overwrite files"),
        ("configs/x.yaml", "my/configs: already exists, and `init` does not overwrite files"),
    ],
)
def test_nothing_is_written_where_something_is_in_the_way(tmp_path, monkeypatch, capsys, there, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my" / there).parent.mkdir(parents=True)
    (tmp_path / "my" / there).touch()
    assert problem in refused(capsys, "init", "my")
    assert not (tmp_path / "my" / "Snakefile").exists()
    assert main(["init", f"my/{there}"]) == 2


def test_its_snakefile_is_ours_but_for_the_place_of_the_rules():
    rest = [
        re.sub(r'^include: f?"(workflow|\{WORKFLOW\})/', 'include: "', text, flags=re.MULTILINE)
        .partition("import min_version\n")[2]
        .removeprefix("from ablation.plan.start import WORKFLOW\n")
        for text in ((ROOT / name).read_text() for name in ("Snakefile", "ablation/cli/new_project/Snakefile"))
    ]
    assert rest[0] == rest[1]
    assert "rules/stages.smk" in rest[0]
    assert (Path(WORKFLOW) / "rules" / "stages.smk").samefile(ROOT / "workflow" / "rules" / "stages.smk")
