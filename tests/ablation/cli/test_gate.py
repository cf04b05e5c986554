"""The command gate: each answer has an exit status of its own, and none but `passed` is 0."""

import pytest

from ablation.store.collect import collect
from tests.ablation.typed import output, refused
from tests.simulate import Study, simulate

SEEDS = range(5)
FAILED = {("v1", 0): "failed"}
NOT_RUN = {(f"v{n}", seed): "missing" for n in range(4) for seed in SEEDS}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """v1 is better than v0, v2 worse and v3 equivalent; in `noisy` nothing is known."""
    folder, many = tmp_path_factory.mktemp("results"), {"gender": 1500, "race": 1500}
    known = Study("known", seeds=5, distances={"v1": 0.0, "v2": 0.3}, seed_sd=0.005, items=many)
    simulate(
        folder,
        [known, Study("noisy", seeds=2), Study("broken", states=FAILED), Study("waiting", seeds=5, states=NOT_RUN)],
    )
    collect(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["known", "v1"], 0, "passed: v1 after v0 is better"),
        (["known", "v1", "--require", "better"], 0, "known: passed (required: better, of 1 edge)"),
        (["known", "v0:v3"], 0, "passed: v3 after v0 is equivalent"),
        (["known", "v3", "--require", "equivalent"], 0, "the 90% interval lies within"),
        (["known", "v3", "--require", "better"], 13, "unmet: v3"),
        (["known", "v1", "--require", "equivalent"], 13, "unmet: v1"),
        (["known"], 10, "worse: v2 after v0 is worse"),
        (["known", "v2", "--require", "equivalent"], 10, "known: worse"),
        (["noisy"], 11, "undecided: v1 after v0 is undecided"),
        (["broken"], 12, "invalid: v1 after v0 is invalid"),
    ],
)
def test_answers(results, capsys, words, status, said):
    assert said in output(capsys, "gate", *words, "--results", results, status=status)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["waiting"], "STUDY = 'waiting': has not run; run the grid first"),
        (["knwon"], "did you mean 'known'"),
        (["known", "v9"], "EDGE = 'v9': is not an edge of the study; choose from v0:v1, v0:v2, v0:v3"),
        (["--require", "better"], "--require: belongs to a STUDY"),
        (["--markdown"], "--markdown: belongs to a STUDY"),
    ],
)
def test_bad_input_is_one_line(results, capsys, words, said):
    assert said in refused(capsys, "gate", *words, "--results", results)


def test_a_comment_has_what_a_reviewer_asks(results, capsys, monkeypatch, tmp_path):
    """Word, effect, interval, margin, cost with its price, and three items that changed."""
    (tmp_path / "configs/scales").mkdir(parents=True)
    (tmp_path / "configs/studies/known").mkdir(parents=True)
    (tmp_path / "configs/studies/known/_study.yaml").touch()
    (tmp_path / "configs/scales/demo.yaml").write_text("seeds: 1\n")
    (tmp_path / "configs/config.yaml").write_text("scale: demo\ncost_per_device_hour: 100\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    text = output(capsys, "gate", "known", "v2", "--markdown", "--results", results, status=10)
    assert (tmp_path / "summary.md").read_text() == f"before\n{text}"
    (row,) = [line for line in text.splitlines() if line.startswith("| v0 -> v2 | worse | worse | -0.2")]
    assert row.endswith("| 0.02 | 2 min of device time (3.47) |")  # two stages of 12.5 s, five seeds
    assert len([line for line in text.splitlines() if line.startswith("  - ")]) == 3
    (tmp_path / "configs/config.yaml").write_text("cost_per_device_hour: much\n")
    said = refused(capsys, "gate", "known", "--results", results)
    assert "cost_per_device_hour = 'much': input should be a valid number" in said
