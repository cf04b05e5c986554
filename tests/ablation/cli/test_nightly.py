"""`gate --reference`: one new run against a folder of runs, and against the file that --update keeps."""

import json
import math
import re

import numpy as np
import pytest

from tests.ablation.typed import output, refused


def write(folder, level, steps=100, last=None, planned=None):
    """Write a run of the HF Trainer whose reward ends near `level`."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(int(abs(level) * 1e6))
    logged = [{"step": n, "reward": level + rng.normal(0, 0.01), "kl": 0.02} for n in range(1, steps + 1)]
    logged[-1]["reward"] = last or logged[-1]["reward"]
    state = {"global_step": steps, "max_steps": planned or steps, "log_history": logged}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


@pytest.fixture
def nights(tmp_path):
    for night, level in enumerate((0.70, 0.71, 0.69, 0.705, 0.695, 0.70)):
        write(tmp_path / "nights" / f"night{night}", level)
    return tmp_path / "nights"


def gate(capsys, *words, status, metrics=("reward",)):
    return output(capsys, "gate", *words, "--metric", *metrics, "--window", "last:20", status=status)


def test_an_alarm_asks_for_reruns_that_decide(nights, tmp_path, capsys):
    runs = [write(tmp_path / name, level) for name, level in (("low", 0.62), ("a", 0.61), ("b", 0.615))]
    said = gate(capsys, "--reference", nights, "--new", runs[0], status=11)
    assert "outside what 6 past runs predict; rerun it twice" in said
    assert "--new RUN RERUN RERUN" in said
    assert "the mean of its 2 reruns is outside" in gate(capsys, "--reference", nights, "--new", *runs, status=10)
    well = [write(tmp_path / name, level) for name, level in (("c", 0.70), ("d", 0.69))]
    assert gate(capsys, "--reference", nights, "--new", runs[0], *well, status=0).endswith("passed\n")


def test_the_file_grows_by_runs_that_pass(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    for number, night in enumerate(sorted(nights.iterdir())):
        said = gate(capsys, "--reference", past, "--new", night, "--update", status=0 if number == 5 else 11)
        assert "1 run appended" in said
    rows = past.read_text().splitlines()
    assert (rows[0], len(rows)) == ("run,metric,window,last_step,value", 7)
    alarm = write(tmp_path / "low", 0.62)
    assert "appended" not in gate(capsys, "--reference", past, "--new", alarm, "--update", status=11)
    again = gate(capsys, "--reference", past, "--new", nights / "night0", "--update", status=0)
    assert re.search(r"nights/night0#[0-9a-f]{8}: left out of the past runs, being the new run", again)
    assert past.read_text().splitlines() == rows


def test_an_alarm_is_not_appended_when_another_metric_is_new(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    for number, night in enumerate(sorted(nights.iterdir())):
        gate(capsys, "--reference", past, "--new", night, "--update", status=0 if number == 5 else 11)
    rows = past.read_text()
    low = [write(tmp_path / name, level) for name, level in (("low", 0.62), ("a", 0.61), ("b", 0.615))]
    for runs, status in ((low[:1], 11), (low, 10)):
        gate(capsys, "--reference", past, "--new", *runs, "--update", metrics=("reward", "kl:min"), status=status)
        assert past.read_text() == rows


def test_each_night_counts_in_a_folder_that_is_used_again(tmp_path, capsys):
    """The metric has few values, and the next night often has one of an earlier night."""
    past, state = tmp_path / "past.csv", write(tmp_path / "runs/tonight", 0.7) / "trainer_state.json"
    content = json.loads(state.read_text())
    words = ("gate", "--reference", past, "--new", state.parent, "--metric", "acc", "--update")
    for night, accuracy in enumerate((0.71, 0.70, 0.71, 0.70, 0.72, 0.71)):
        content["log_history"][-1] |= {"acc": accuracy, "train_runtime": 100 + night}
        state.write_text(json.dumps(content))
        for appended in ("1 run", "0 runs"):
            assert f"{appended} appended" in output(capsys, *words, status=0 if night >= 5 else 11)
    assert len(past.read_text().splitlines()) == 7


def test_past_runs_without_the_metric_are_left_out(nights, tmp_path, capsys):
    state = nights / "night5/trainer_state.json"
    state.write_text(state.read_text().replace("reward", "other"))
    said = gate(capsys, "--reference", nights, "--new", write(tmp_path / "new", 0.7), status=0)
    assert "night5: left out of the past runs, reward has not been logged" in said
    assert "what 5 past runs predict" in said


def test_metrics_have_directions_and_share_the_level(nights, tmp_path, capsys):
    new = write(tmp_path / "new", 0.75)
    words = ("gate", "--reference", nights, "--new", new, "--window", "last:20", "--json", "--metric")
    assert json.loads(output(capsys, *words, "reward:both", status=11))["rows"][0]["direction"] == "both"
    two = json.loads(output(capsys, *words, "reward", "kl:min", status=0))
    assert [row["outcome"] for row in two["rows"]] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ([], 0.5),  # of the model that was kept
        (["--at", "last"], 2.0),
        (["--at", "200"], 1.5),
        (["--at", "best"], 0.4),
        (["--at", "200", "--window", "last:2"], 1.25),
    ],
)
def test_the_model_that_was_kept_is_judged(options, value, tmp_path, capsys):
    for place in (*(f"nights/{night}" for night in range(5)), "new"):
        folder = write(tmp_path / place, 0.7)
        state = json.loads((folder / "trainer_state.json").read_text())
        losses = {50: 0.4, 100: 1.0, 200: 1.5, 300: 0.5, 400: 2.0}
        rows = [{"step": step, "eval_loss": loss + int(place[-1:] == "1") / 1e3} for step, loss in losses.items()]
        kept = {"global_step": 400, "max_steps": 400, "best_global_step": 300, "log_history": rows}
        (folder / "trainer_state.json").write_text(json.dumps(state | kept))
        (folder / "args.json").write_text(json.dumps({"load_best_model_at_end": True}))
    words = ("gate", "--reference", tmp_path / "nights", "--new", tmp_path / "new", "--metric", "eval_loss:min")
    found = json.loads(output(capsys, *words, *options, "--json", status=0))
    assert found["rows"][0]["value"] == pytest.approx(value)
    assert any("kept, at step 300; --at last" in note for note in found["notes"]) == (not options)


@pytest.mark.parametrize("head", ["step,reward", "step,name,value"])
def test_tables_of_metrics_are_runs(head, tmp_path, capsys):
    """Of any program that writes one."""
    for night in range(7):
        folder = tmp_path / f"nights/n{night}"
        folder.mkdir(parents=True)
        name = "reward," if "name" in head else ""
        (folder / "metrics.csv").write_text(f"{head}\n1,{name}0.{night}\n2,{name}0.7{night}\n")
    (tmp_path / "nights/n0/metrics.csv").write_text("step,reward\n1,0.7\n2,high\n")
    (tmp_path / "nights/n6/eval").mkdir()
    (tmp_path / "nights/n6/eval/metrics.csv").write_text("step,reward\n1,0.1\n")  # another table of the same run
    words = ("gate", "--reference", tmp_path / "nights", "--new", tmp_path / "nights/n6", "--metric", "reward")
    said = output(capsys, *words, status=0)
    assert "what 5 past runs predict" in said
    assert "note: n6: left out of the past runs, being the new run" in said
    assert "reward = 'high': is not a number" in said


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"steps": 60}, "ends at step 60, in all past runs at 100 or later"),
        ({"last": math.nan}, "reward is nan"),
        ({"steps": 60, "planned": 100}, "the run has not ended: it is still running, or was killed"),
    ],
)
def test_a_broken_run_is_invalid(nights, tmp_path, capsys, run, said):
    new = write(tmp_path / "new", 0.7, **run)
    assert said in gate(capsys, "--reference", nights, "--new", new, status=12)


NIGHT = ["--new", "nights/night0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (NIGHT, "needs --metric"),
        (["--metric", "reward"], "needs --new"),
        (["--new", "nowhere", "--metric", "reward"], "nowhere: does not exist"),
        (["--new", "nights", "--metric", "reward"], "hold 6 runs, and 1 were named; name each run's own folder"),
        ([*NIGHT, "--metric", "rewad:max"], "did you mean 'reward'"),
        ([*NIGHT, "--metric", "kl"], "write kl:max if larger is better, kl:min if smaller is, kl:both if neither"),
        ([*NIGHT, "--metric", "kl:both", "--at", "best"], "asks which value of kl is better"),
        ([*NIGHT, "--metric", "reward", "--window", "20"], "write last or last:20"),
        ([*NIGHT, "--metric", "reward", "--window", "last:200"], "has been logged 100 times only"),
        ([*NIGHT, "--metric", "reward", "--update"], "--update = 'nights': is a folder"),
        ([*NIGHT, "--metric", "reward", "--at", "end"], "is not a step; write last, best or a number"),
        ([*NIGHT, "--metric", "reward", "--at", "101"], "ends at step 100; name a step that all runs"),
        ([*NIGHT, "--metric", "reward", "--since", "v0"], "does not go with --reference"),
        ([*NIGHT, "--metric", "reward", "--without", "v1:0"], "does not go with --reference"),
        ([*NIGHT, "--metric", "reward", "--require", "better"], "does not go with --reference"),
        ([*NIGHT, "--metric", "reward", "--allow", "identical"], "does not go with --reference"),
        ([*NIGHT, "--metric", "reward", "--markdown"], "--markdown: does not go with"),
        (["known", *NIGHT, "--metric", "reward"], "STUDY = 'known': does not go with --reference"),
    ],
)
def test_bad_input_is_one_line(nights, monkeypatch, capsys, words, said):
    monkeypatch.chdir(nights.parent)
    assert said in refused(capsys, "gate", "--reference", "nights", *words)


def test_a_damaged_file_names_its_line(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    past.write_text("run,metric,window,last_step,value\nn,reward,last,100,high\n")
    words = ("gate", "--reference", past, "--new", nights / "night0", "--metric", "reward")
    assert "line 2 = 'n,reward,last,100,high': is not a row of a past run" in refused(capsys, *words)
