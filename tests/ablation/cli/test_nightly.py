"""`ablation nightly`: one new run against a folder of runs, and against the file that --update keeps."""

import json
import math
import re
import shutil

import numpy as np
import pytest

from ablation.readers import past_runs
from tests.ablation.typed import output, refused, typed


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
    for night, level in enumerate((0.70, 0.71, 0.69, 0.705, 0.695, 0.702)):
        write(tmp_path / "nights" / f"night{night}", level)
    return tmp_path / "nights"


def nightly(capsys, *words, status, metrics=("reward",)):
    return output(capsys, "nightly", *words, "--metric", *metrics, "--window", "last:20", status=status)


def test_an_alarm_asks_for_reruns_that_decide(nights, tmp_path, capsys):
    runs = [write(tmp_path / name, level) for name, level in (("low", 0.62), ("a", 0.61), ("b", 0.615))]
    said = nightly(capsys, nights, "--new", runs[0], status=11)
    assert "outside what 6 past runs predict; repeat the new run twice" in said
    assert "--new RUN RERUN RERUN" in said
    assert "the mean of 2 reruns is outside" in nightly(capsys, nights, "--new", *runs, status=10)
    well = [write(tmp_path / name, level) for name, level in (("c", 0.7004), ("d", 0.6906))]
    assert nightly(capsys, nights, "--new", runs[0], *well, status=0).endswith("passed\n")


def test_the_file_grows_by_runs_that_pass(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    for number, night in enumerate(sorted(nights.iterdir())):
        said = nightly(capsys, past, "--new", night, "--update", status=0 if number == 5 else 11)
        assert "1 run appended" in said
    rows = past.read_text().splitlines()
    assert (rows[0], len(rows)) == ("run,metric,window,last_step,value", 7)
    alarm = write(tmp_path / "low", 0.62)
    assert "appended" not in nightly(capsys, past, "--new", alarm, "--update", status=11)
    again = nightly(capsys, past, "--new", nights / "night0", "--update", status=0)
    assert re.search(r"nights/night0#[0-9a-f]{8}: left out of the past runs because it is the new run", again)
    assert past.read_text().splitlines() == rows


def test_an_alarm_is_not_appended_when_another_metric_is_new(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    for number, night in enumerate(sorted(nights.iterdir())):
        nightly(capsys, past, "--new", night, "--update", status=0 if number == 5 else 11)
    rows = past.read_text()
    low = [write(tmp_path / name, level) for name, level in (("low", 0.62), ("a", 0.61), ("b", 0.615))]
    for runs, status in ((low[:1], 11), (low, 10)):
        nightly(capsys, past, "--new", *runs, "--update", metrics=("reward", "kl:min"), status=status)
        assert past.read_text() == rows


def test_each_night_counts_in_a_folder_that_is_used_again(tmp_path, capsys):
    """The metric has few values, and the next night often has one of an earlier night."""
    past, state = tmp_path / "past.csv", write(tmp_path / "runs/tonight", 0.7) / "trainer_state.json"
    content = json.loads(state.read_text())
    words = ("nightly", past, "--new", state.parent, "--metric", "acc", "--update")
    for night, accuracy in enumerate((0.71, 0.70, 0.71, 0.70, 0.72, 0.71)):
        content["log_history"][-1] |= {"acc": accuracy, "train_runtime": 100 + night}
        state.write_text(json.dumps(content))
        for appended in ("1 run", "0 runs"):
            assert f"{appended} appended" in output(capsys, *words, status=0 if night >= 5 else 11)
    assert len(past.read_text().splitlines()) == 7


def test_past_runs_without_the_metric_are_left_out(nights, tmp_path, capsys):
    state = nights / "night5/trainer_state.json"
    state.write_text(state.read_text().replace("reward", "other"))
    said = nightly(capsys, nights, "--new", write(tmp_path / "new", 0.7004), status=0)
    assert "night5: left out of the past runs because reward has not been logged" in said
    assert "what 5 past runs predict" in said


def test_metrics_have_directions_and_share_the_level(nights, tmp_path, capsys):
    new = write(tmp_path / "new", 0.75)
    words = ("nightly", nights, "--new", new, "--window", "last:20", "--json", "--metric")
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
        more = place.count("/") * (1 + int(place[-1:].replace("w", "0"))) / 1e3
        rows = [{"step": step, "eval_loss": loss + more} for step, loss in losses.items()]
        kept = {"global_step": 400, "max_steps": 400, "best_global_step": 300, "log_history": rows}
        (folder / "trainer_state.json").write_text(json.dumps(state | kept))
        (folder / "args.json").write_text(json.dumps({"load_best_model_at_end": True}))
    words = ("nightly", tmp_path / "nights", "--new", tmp_path / "new", "--metric", "eval_loss:min")
    found = json.loads(output(capsys, *words, *options, "--json", status=0))
    assert found["rows"][0]["value"] == pytest.approx(value)
    assert any("kept model, at step 300; for the last step" in note for note in found["notes"]) == (not options)


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
    words = ("nightly", tmp_path / "nights", "--new", tmp_path / "nights/n6", "--metric", "reward")
    said = output(capsys, *words, status=0)
    assert "what 5 past runs predict" in said
    assert "note: n6: left out of the past runs because it is the new run" in said
    assert "reward = 'high': is not a number" in said


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"steps": 60}, "ends at step 60, but all past runs end at step 100 or later"),
        ({"last": math.nan}, "reward is nan"),
        ({"steps": 60, "planned": 100}, "the run has not ended (it is still running, or was killed)"),
    ],
)
def test_a_broken_run_is_invalid(nights, tmp_path, capsys, run, said):
    new = write(tmp_path / "new", 0.7, **run)
    assert said in nightly(capsys, nights, "--new", new, status=12)


NIGHT = ["--new", "nights/night0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--new", "nowhere", "--metric", "reward"], "nowhere: does not exist"),
        (["--new", "nights", "--metric", "reward"], "names 6 runs in 1 path; pass one path for each run"),
        ([*NIGHT, "--metric", "rewad:max"], "did you mean 'reward'"),
        (
            [*NIGHT, "--metric", "kl"],
            "write kl:max if larger is better, kl:min if smaller is better, kl:both if neither",
        ),
        ([*NIGHT, "--metric", "kl:both", "--at", "best"], "is not defined for kl:both"),
        ([*NIGHT, "--metric", "reward", "--window", "20"], "write last, or last:N such as last:20"),
        ([*NIGHT, "--metric", "reward", "--window", "last:200"], "has been logged only 100 times"),
        ([*NIGHT, "--metric", "reward", "--update"], "--update = 'nights': is a folder"),
        ([*NIGHT, "--metric", "reward", "--at", "end"], "is not a step; write last, best or a number"),
        ([*NIGHT, "--metric", "reward", "--at", "101"], "ends at step 100; pass --at with a step that all runs"),
        ([*NIGHT, "--metric", "reward:max", "reward:min"], "reward occurs twice"),
        ([*NIGHT, "--metric", "reward", "reward:min"], "reward occurs twice"),
        ([*NIGHT, NIGHT[1], "--metric", "reward"], "the same run occurs twice"),
    ],
)
def test_bad_input_is_one_line(nights, monkeypatch, capsys, words, said):
    monkeypatch.chdir(nights.parent)
    assert said in refused(capsys, "nightly", "nights", *words)


def test_a_damaged_file_names_its_line(nights, tmp_path, capsys):
    past = tmp_path / "past.csv"
    past.write_text("run,metric,window,last_step,value\nn,reward,last,100,high\n")
    words = ("nightly", past, "--new", nights / "night0", "--metric", "reward")
    assert "line 2 = 'n,reward,last,100,high': does not match run,metric,window" in refused(capsys, *words)


def past_file(path, values, steps=100, names=None):
    """A file of past runs, as --update writes it."""
    ends = [steps] * len(values) if isinstance(steps, int) else steps
    rows = [
        f"{name},reward,last,{step},{value!r}"
        for name, step, value in zip(names or [f"n{k}" for k in range(len(values))], ends, values, strict=True)
    ]
    path.write_text("\n".join(["run,metric,window,last_step,value", *rows]) + "\n")
    return path


GOOD = [0.7012345678, 0.7112345678, 0.6912345678, 0.7052345678, 0.6952345678, 0.7032345678]


def ended(folder, value, steps=100, extra=()):
    """A run that ended at a value."""
    folder.mkdir(parents=True)
    rows = ["step,reward", *(f"{n},{value + n / 1e6}" for n in range(1, steps)), f"{steps},{value}", *extra]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    return folder


RNG = np.random.default_rng(6)
DRIFTING = (0.7 + 0.02 * np.arange(20) + RNG.normal(0, 0.01, 20)).tolist()


def test_the_trend_and_the_autocorrelation_of_a_file_are_told(tmp_path, capsys):
    """In the file's order, whatever the names are."""
    names = [f"n{k * 7 % 20}" for k in range(20)]
    file = past_file(tmp_path / "past.csv", DRIFTING, names=names)
    words = ("nightly", file, "--metric", "reward", "--new")
    said = output(capsys, *words, ended(tmp_path / "mean", 0.9), status=11)  # of all nights, but far below the line
    told = r"reward: trend \+0\.02 per night, autocorrelation 0\.\d\d, "
    told += r"estimated from 20 past runs in the order of the rows of the file\n"
    assert re.search(f"note: {told}", said)
    assert "RERUN RERUN (the mean of the reruns decides, at a significance level of 2%)" in said
    assert "independent" not in said
    found = json.loads(output(capsys, *words, ended(tmp_path / "line", 1.1), "--json", status=0))["rows"][0]
    assert (found["trend"], found["confirm"]) == (pytest.approx(0.02, abs=1e-3), 0.02)


def test_a_few_past_runs_count_as_independent(tmp_path, capsys):
    file = past_file(tmp_path / "past.csv", GOOD)
    said = output(capsys, "nightly", file, "--metric", "reward", "--new", ended(tmp_path / "new", 0.6), status=11)
    assert (
        "runs are treated as independent because there are fewer than 15 past runs; if metrics drift or are correlated"
        in said
    )
    assert "(the mean of the reruns decides, at a significance level of 5%)" in said
    assert "trend" not in said


def folder_of_nights(place, names):
    for name, value in zip(names, DRIFTING, strict=True):
        ended(place / name, value)
    return place


def test_a_new_run_that_is_not_the_last_says_nothing_of_the_order(tmp_path, capsys):
    nights = folder_of_nights(tmp_path / "nights", [f"2026-11-{day:02}" for day in range(1, 21)])
    words = ("nightly", nights, "--metric", "reward", "--new")
    said = output(capsys, *words, nights / "2026-11-20", status=0)
    assert "estimated from 19 past runs in the order of the dates in their names" in said
    said = output(capsys, *words, nights / "2026-11-19", status=0)
    assert "independent because the order of the runs is not certain, or the new run is not the last; if" in said
    file = past_file(tmp_path / "past.csv", DRIFTING, names=[f"n{k}#{k}" for k in range(20)])
    lines = file.read_text().splitlines()
    new = ended(tmp_path / "new", DRIFTING[9])
    own = past_runs.digest(next(iter(past_runs.read_runs([new], ["reward"], print))))
    lines[10] = f"new#{own},reward,last,100,{DRIFTING[9]!r}"
    file.write_text("\n".join(lines) + "\n")
    said = output(capsys, "nightly", file, "--metric", "reward", "--new", new, status=0)
    assert "what 19 past runs predict" in said
    assert "because the order of the runs is not certain, or the new run is not the last" in said


SHUFFLED = [k * 7 % 20 for k in range(20)]


@pytest.mark.parametrize(
    ("names", "by"),
    [
        ([f"nights/run-{k}" for k in SHUFFLED], "the numbers in their names"),
        ([f"gpt-2-{k + 95}-bs64" for k in SHUFFLED], "the numbers in their names"),
        ([f"{k % 3}-2026{1 + k // 9:02}{1 + k % 9:02}_0300" for k in SHUFFLED], "the dates in their names"),
        ([f"2026-11-27T{k:02}:15" for k in SHUFFLED], "the dates in their names"),
        ([f"seed7/night_{k}#20261130" for k in SHUFFLED], "the numbers in their names"),  # and a digest
        ([f"seed{k}" for k in SHUFFLED], ""),
        ([f"grpo-s{k}" for k in SHUFFLED], ""),
        ([f"run-{k * 1013 % 977}" for k in SHUFFLED], ""),  # of a job or a process, or drawn
        ([f"{27 - k}-{1 + k % 12}-2026" for k in SHUFFLED], ""),  # the day first
        ([f"2026-11-{1 + k % 10:02}-{k}" for k in SHUFFLED], ""),  # two a day
        ([f"run-{k}" for k in SHUFFLED[:-1]] + ["smoke"], ""),
        (["amber-fox", "quiet-sun", *[f"run{k}" for k in SHUFFLED[2:]]], ""),
    ],
)
def test_the_order_of_a_folder_is_that_of_its_names_if_it_is_certain(names, by):
    ordered, found = past_runs.in_time(dict.fromkeys(names))
    assert found == by or not ordered
    assert ordered == ([name for _, name in sorted(zip(SHUFFLED, names, strict=True))] if by else [])


def test_start_times_order_runs_of_any_names():
    starts = {f"{k * 13 % 20}": f"2026-11-{k + 1:02}T03:00:00+00:00" for k in SHUFFLED}
    ordered, found = past_runs.in_time(starts)
    assert (ordered, found) == (sorted(starts, key=starts.__getitem__), "start times")
    assert past_runs.in_time(dict.fromkeys(["amber", "quiet"], "2026-11-27T03:00:00+00:00"))[0] == []
    assert past_runs.in_time({"amber": "1970-01-01T00:00:00+00:00", "quiet": starts["0"]})[0] == []
    assert past_runs.in_time({"amber": None, "quiet": starts["0"]})[0] == []


@pytest.mark.parametrize(
    "tried",
    [
        ([v / 2 for v in GOOD], 35.0, 12, "so they may mix shares with percentages or ratings"),
        ([*GOOD[:5], 70.1], 0.35, 2, "so they may mix shares with percentages or ratings"),
        (GOOD * 2, 0.2, 2, "have the same value to the last digit, so they may be copies"),
        (
            [*GOOD[:4], *[0.212345678] * 4],
            0.212345678,
            2,
            "n4, n5, n6 and 1 more have the same value to the last digit",
        ),
        ([0.75, 0.71, 0.75, 0.75, 0.71, 0.72], 0.73, 0, "passed"),  # of 100 items
    ],
)
def test_past_values_that_cannot_be_independent_runs_on_one_scale_are_refused(tmp_path, capsys, tried):
    past, new, status, said = tried
    file, run = past_file(tmp_path / "past.csv", past), ended(tmp_path / "new", new)
    for direction in ("max", "min", "both"):
        code, out, err = typed(capsys, "nightly", file, "--new", run, "--metric", f"reward:{direction}")
        assert (code, said in out + err) == (status, True), out + err


def test_a_file_that_was_cut_is_refused(tmp_path, capsys):
    """`0.70` cut to `0` was read as a run of value 0, within whose spread a collapsed run passed."""
    file, run = past_file(tmp_path / "past.csv", GOOD), ended(tmp_path / "new", 0.2)
    file.write_text(file.read_text()[: -len(".7032345678\n")])
    words = ("nightly", file, "--new", run, "--metric", "reward")
    assert "line 7 = 'n5,reward,last,100,0': has no line break" in refused(capsys, *words)
    assert "has no line break" in refused(capsys, *words, "--update")
    past_file(file, [*GOOD, 0.5], names=[*(f"n{k}" for k in range(6)), "n0"])
    assert "line 8 = 0.5: n0 has another value of reward in an earlier line" in refused(capsys, *words)
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text()[:-1])
    past_file(file, GOOD)
    assert "the run has not ended" in output(capsys, *words, status=12)


def test_one_run_counts_once_wherever_it_lies(nights, tmp_path, capsys):
    for copy in ("again", "more"):
        shutil.copytree(nights / "night0", nights / copy)
    shutil.copytree(nights / "night1", tmp_path / "elsewhere/night1")
    said = nightly(capsys, nights, "--new", tmp_path / "elsewhere/night1", status=0)
    assert "what 5 past runs predict" in said
    assert "night0: left out of the past runs because it is a copy of again" in said
    assert "more: left out of the past runs because it is a copy of again" in said
    assert "night1: left out of the past runs because it is the new run" in said
    past = tmp_path / "past.csv"
    for place in (nights / "night1", tmp_path / "elsewhere/night1"):
        said = nightly(capsys, past, "--new", place, "--update", status=11)
    assert "0 runs appended" in said
    assert not list(tmp_path.glob(".past.csv*"))


def test_a_past_run_that_ended_early_excuses_no_other(tmp_path, capsys):
    file = past_file(tmp_path / "past.csv", GOOD, steps=[50, *[100] * 5])
    words = ("nightly", file, "--metric", "reward", "--new")
    said = output(capsys, *words, ended(tmp_path / "short", 0.7, steps=50), status=12)
    assert "ends at step 50, but all past runs end at step 100 or later" in said
    assert "n0: left out of the past runs because reward ends at step 50, but most runs end at step 100" in said
    said = output(capsys, *words, ended(tmp_path / "long", 0.7, steps=150), status=0)
    assert "reward continues to step 150, but all past runs end at step 100 or earlier" in said


def test_what_a_run_logged_oddly_is_told(tmp_path, capsys):
    file = past_file(tmp_path / "past.csv", GOOD)
    words = ("nightly", file, "--metric", "reward", "--new")
    said = output(capsys, *words, ended(tmp_path / "twice", 0.2, extra=["100,0.7"]), status=0)
    assert "reward has 2 values at step 100" in said
    past_file(file, GOOD, steps=1)
    file.write_text(file.read_text().replace(",last,", ",last at best,"))
    run = ended(tmp_path / "nan", 0.7, extra=["101,nan"])
    assert "reward is nan" in output(capsys, *words, run, "--at", "best", status=12)


def test_nights_without_a_table_are_named(tmp_path, capsys):
    for night in range(7):
        ended(tmp_path / f"nights/n{night}", 0.7 + night / 1000)
    for night in (5, 6):
        (tmp_path / f"nights/n{night}/metrics.csv").rename(tmp_path / f"nights/n{night}/log.csv")
    new = ended(tmp_path / "new", 0.7005)
    said = output(capsys, "nightly", tmp_path / "nights", "--new", new, "--metric", "reward", status=0)
    assert "nights: folders without a run in the format metrics are left out: n5, n6" in said


def test_the_gate_names_the_command(capsys):
    said = refused(capsys, "gate", "--reference", "nights", "--new", "x", "--metric", "reward")
    assert "--reference: has become a separate command; use `ablation nightly PAST --new RUN --metric NAME" in said
