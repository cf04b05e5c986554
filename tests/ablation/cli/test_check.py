"""`ablation check` of a new project: what fits, what does not, and that mending the mapping trains nothing."""

import re
from pathlib import Path

import pytest

from ablation.cli.main import main

pytestmark = pytest.mark.slow  # each check starts processes
STUDY = Path("configs/studies/example/_study.yaml")


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def test_what_a_check_finds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATION_WANDB", "off")  # no mode of wandb: a stage that got it would fail
    main(["init"])
    edit(Path("train.py"), '[("item", "correct")', '[("id", "correct")')
    edit(STUDY, "train/loss, ", "train/los, ")
    edit(STUDY, "test/all/correct, ", "test/all/corect, ")
    assert main(["check", "example/average"]) == 1
    assert "or name another column: `{items: {path: items.csv, item: id}}`" in capsys.readouterr().out
    (stage,) = Path("results/check/stages/example/train").iterdir()
    made = (stage / "output" / "items.csv").stat().st_mtime_ns
    edit(STUDY, "[metrics, items]", "[metrics, {items: {path: items.csv, item: id}}]")
    assert main(["check", "example/average"]) == 1
    assert (stage / "output" / "items.csv").stat().st_mtime_ns == made  # read again, not run again
    said = capsys.readouterr().out
    assert "items: test/all/correct (400 items, mean 0." in said
    assert re.search(r"^peak memory: example.train [\d,]+ MB in the process$", said, re.MULTILINE)
    assert re.search(r"^all jobs of the grid take about [^:]+: example.train [\d.]+ s x 20$", said, re.MULTILINE)
    told = ["curves: no stage has logged train/los; did you mean train/loss?"]
    told += ["table: no run has measured test/all/corect; did you mean test/all/correct?"]
    assert all(f"problem: {line}\n" in said for line in told)
    main(["validate"])
    validated = capsys.readouterr().out
    assert all(f"example: {line}\n" in validated for line in told)
    assert not Path("results/stages").exists()
    edit(STUDY, "train/los,", "train/loss,")
    edit(STUDY, "corect", "correct")
    capsys.readouterr()
    assert main(["check", "example/average"]) == 0
    assert "is still the text of the example" not in capsys.readouterr().out
    edit(STUDY, "title: Final weights of a logistic regression", "title: Mine")
    edit(STUDY, "{python} train.py", "{python} -u train.py")  # another program
    edit(STUDY.with_name("slow.yaml"), "why: ", "why: own reasons and ")
    assert main(["check", "example/average"]) == 0
    kept = [line for line in capsys.readouterr().out.splitlines() if "is still the text of the example" in line]
    assert [line.split(": ")[1:3] for line in kept] == [
        [str(STUDY), "question is still the text of the example; replace it, because the report page shows it"],
        *[
            [str(STUDY.with_name(name)), kept[1].split(": ")[2]]
            for name in ("base.yaml", "average.yaml", "slow-average.yaml")
        ],
    ]
    assert main(["check", "example/averag"]) == 2
    assert "did you mean 'average'" in capsys.readouterr().err
