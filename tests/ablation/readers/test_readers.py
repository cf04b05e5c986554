"""Readers, on files that the real packages wrote (`make_written.py`) and on copies that were damaged."""

import json
import os
import pickle
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ablation.readers import tensorboard, tensorboard_log, trainer_state, verl
from ablation.readers.run import ITEM_ROWS, METRIC_ROWS
from tests.peers.environment import python_of

WRITTEN = Path(__file__).parent / "written"


def read(reader, path):
    problems = []
    runs = {run.name: run for run in reader.read(path, problems.append)}
    for run in runs.values():
        assert run.metrics.schema == METRIC_ROWS
        assert run.items is None or run.items.schema == ITEM_ROWS
    return runs, problems


def course(run, name):
    return [(row["step"], row["value"]) for row in run.metrics.to_pylist() if row["name"] == name]


def items(run, subset, name):
    return {r["item"]: r["value"] for r in run.items.to_pylist() if (r["subset"], r["name"]) == (subset, name)}


@pytest.fixture(scope="module", params=["stored", pytest.param("peer", marks=pytest.mark.peers)])
def written(request, tmp_path_factory):
    """Files of the real packages: those that are stored here, or made now by the packages as they are installed."""
    if request.param == "stored":
        return WRITTEN
    folder = tmp_path_factory.mktemp("written")
    for part, library in (("trainer", "trl"), ("trl", "trl"), ("verl", "verl")):
        command = [python_of(library), WRITTEN.parent / "make_written.py", part, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


# Hugging Face


def test_rows_of_training_and_evaluation_interleave(written):
    runs, problems = read(trainer_state, written / "trainer")
    assert problems == []
    assert sorted(runs) == ["base/seed_0", "base/seed_1", "fast/seed_0", "fast/seed_1"]
    run = runs["base/seed_0"]
    state = json.loads((written / "trainer/base/seed_0/trainer_state.json").read_text())
    logged = [(row["step"], row["loss"]) for row in state["log_history"] if "loss" in row]
    evaluated = [(row["step"], row["eval_loss"]) for row in state["log_history"] if "eval_loss" in row]
    assert (len(logged), len(evaluated)) == (4, 2)
    assert course(run, "loss") == logged
    assert course(run, "eval_loss") == evaluated
    assert course(run, "train_loss") == [(4, state["log_history"][-1]["train_loss"])]
    assert (run.config["learning_rate"], run.config["seed"], run.state) == (0.05, 0, "finished")


def test_of_checkpoints_the_furthest_counts_and_a_damaged_one_is_named(written, tmp_path):
    shutil.copytree(written / "trainer/base/seed_0", tmp_path / "run")
    whole = (tmp_path / "run/trainer_state.json").read_text()
    (tmp_path / "run/trainer_state.json").write_text("")
    runs, [problem] = read(trainer_state, tmp_path)
    assert len(course(runs["run"], "loss")) == 4  # of checkpoint-4
    assert "run/trainer_state.json: is cut off or damaged; 0 rows" in problem
    for path in tmp_path.glob("run/checkpoint-*/*"):
        path.unlink()
    (tmp_path / "run/trainer_state.json").write_text(whole[: whole.index('"step": 4')])
    runs, problems = read(trainer_state, tmp_path)
    assert [step for step, _ in course(runs["run"], "loss")] == [1, 2, 3]
    assert "4 rows of log_history can be read" in problems[0]


def test_completions_are_items_of_their_step_with_a_value_per_reward(written, tmp_path):
    runs, problems = read(trainer_state, written / "trl")
    assert problems == []
    run = runs["grpo-s0"]
    table = pq.read_table(written / "trl/grpo-s0/completions/completions_00002.parquet").to_pylist()
    found = items(run, "step 2", "length")
    assert sorted(found.values()) == sorted(row["length"] for row in table)
    assert len({name.partition("#")[0] for name in found}) == len({row["prompt"] for row in table})
    assert len(found) == len(table) == 4  # two completions of each of two prompts: the second is numbered
    assert sum("#2" in name for name in found) == 2
    assert {row["name"] for row in run.items.to_pylist()} == {"advantage", "has_a", "length"}
    shutil.copytree(written / "trl/grpo-s0", tmp_path / "run")
    broken = tmp_path / "run/completions/completions_00001.parquet"
    broken.write_bytes(broken.read_bytes()[:-100])
    runs, [problem] = read(trainer_state, tmp_path)
    assert {row["subset"] for row in runs["run"].items.to_pylist()} == {"step 2"}
    assert str(broken) in problem


def test_settings_are_read_from_the_pickle_of_a_real_run(written):
    config = read(trainer_state, written / "trl")[0]["grpo-s1"].config
    expected = {"seed": 1, "num_generations": 2, "lr_scheduler_type": "linear", "learning_rate": 1e-06}
    assert {name: config[name] for name in expected} == expected
    assert config["accelerator_config"]["even_batches"] is True
    assert not {name for name in config if name.startswith("_") or name.endswith("_token")}


class Command:
    def __reduce__(self):
        return os.system, ("touch ran",)


NESTED = [0]
PAIRS = ()
for _ in range(40):
    NESTED = [NESTED, NESTED]
    PAIRS = (PAIRS, PAIRS)
SETS = b"\x8f(" + b"(" * 40 + b"K\x00\x91" + b"\x94(h\x00\x91" * 40  # frozen sets of frozen sets


def args(value):
    """A record of the Trainer whose setting x is this."""
    return b"\x80\x02ctransformers\nA\n)\x81}X\x01\x00\x00\x00x" + pickle.dumps(value, 2)[2:-1] + b"sb."


@pytest.mark.parametrize(
    ("pickled", "why"),
    [
        (pickle.dumps({"learning_rate": Command()}, 2), "the file names posix.system, which is not in transformers"),
        (args(NESTED), "too many values"),
        (args(PAIRS), "more than 24 tuples"),
        (b"\x80\x04}" + SETS + b"K\x01s.", "a frozen set"),
        (args({3: 4}), "a key that is not text"),
        (args([])[:-1] + b"N0" * 25_000 + b".", "the file is too long"),
        (b"\x80\x02ctransformers\nA\n(X\x04\x00\x00\x00texttR.", "the file holds no settings"),
        (args(10**5000), "more than 64 bits"),
        (args(["x" * 50_000] * 100), "too many values"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "the file is damaged"),  # of the memo a place that would take 16 GB
        (b"\x80\x02U\x01aQ.", "persistent"),
        (b"\x80\x02}q\x00", "exhausted"),
        (pickle.dumps({"learning_rate": 1.0}, 2), "the file holds no settings"),
        (None, "not a zip file"),
    ],
)
def test_a_pickle_of_something_else_is_refused_with_the_line_to_add(pickled, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(WRITTEN / "trl/grpo-s0", tmp_path / "run")
    file = tmp_path / "run/training_args.bin"
    file.write_bytes(b"")
    if pickled is not None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
    runs, [problem] = read(trainer_state, tmp_path)
    assert f"{file}: is not read, " in problem
    assert why in problem
    assert "trainer.args.to_json_string()" in problem
    assert "learning_rate" not in runs["run"].config
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"log_history": [{"step": 1e400, "loss": 2}]}',
        '{"log_history": [{"step": 123456789012345678901234567890, "loss": 2}, {"step": true, "loss": 3}]}',
        '{"log_history": [{"step": 1, "loss": null, "x": [1], "y": {}}], "stateful_callbacks": {"TrainerControl": 3}}',
        '{"log_history": [], "global_step": {}, "stateful_callbacks": {"TrainerControl": {"args": null}}}',
        '{"log_history": [{"step": "a"}, {"step": 2',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_odd_contents_are_named_or_read_and_never_a_traceback(text, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/trainer_state.json").write_text(text)
    runs, problems = read(trainer_state, tmp_path)
    assert problems or not runs["run"].metrics.num_rows
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"step": 1, "data": {"a": 1, "b": [2], "c": {"d": 3}, "e": true}}\n' + text.replace("\n", "") + "\n"
    )
    runs, problems = read(verl, log)
    [run] = runs.values()
    assert [(row["name"], row["value"]) for row in run.metrics.to_pylist()] == [("a", 1.0), ("e", 1.0)]
    assert problems


# verl


def test_verls_log_and_samples(written):
    runs, problems = read(verl, written / "verl")
    assert problems == []
    assert sorted(runs) == [f"{name}/seed_{seed}" for name in ("grpo", "gspo", "resumed") for seed in (0, 1)]
    run = runs["grpo/seed_1"]
    lines = [json.loads(line) for line in (written / "verl/grpo/seed_1.jsonl").read_text().splitlines()]
    assert course(run, "critic/score/mean") == [(line["step"], line["data"]["critic/score/mean"]) for line in lines]
    assert course(run, "note") == []  # a text
    samples = [json.loads(s) for s in (written / "verl/grpo/seed_1/validation/6.jsonl").read_text().splitlines()]
    found = items(run, "step 6", "acc")
    assert len(found) == len(samples) == 8
    assert sum(found.values()) == sum(sample["acc"] for sample in samples)
    # Each question was sampled twice: its repeat has a number, and shares its cluster.
    clusters = {r["item"]: r["cluster"] for r in run.items.to_pylist()}
    assert sorted(name.partition("#")[2] for name in found) == [""] * 4 + ["2"] * 4
    assert all(cluster == name.partition("#")[0] for name, cluster in clusters.items())
    # The same questions get the same names in every run.
    assert set(found) == set(items(runs["gspo/seed_0"], "step 6", "acc"))


def test_a_torn_line_of_verls_log_is_named_and_the_others_are_read(written, tmp_path):
    log = tmp_path / "run one.jsonl"
    log.write_bytes((written / "verl/grpo/seed_0.jsonl").read_bytes()[:-30])
    runs, [problem] = read(verl, tmp_path)
    assert [step for step, _ in course(runs["run one"], "critic/score/mean")] == [1, 2, 3, 4, 5]
    assert f"{log}: line 6 is cut off" in problem
    (tmp_path / "two.jsonl").write_bytes(b'{"step": 1, "da\n' + log.read_bytes())
    assert (
        f"{tmp_path}: files that do not begin with a line of the logger `file` are left out: two.jsonl"
        in read(verl, tmp_path)[1]
    )


# TensorBoard


def test_a_restart_counts_from_its_first_step_on_and_no_point_is_left_out():
    runs, problems = read(tensorboard, WRITTEN / "tensorboard")
    assert problems == []
    run = runs["lr_0.1/seed_0"]
    loss = course(run, "loss")
    assert [step for step, _ in loss] == list(range(320))
    assert all(value == pytest.approx(1.0 - step / 1000) for step, value in loss[:200])
    assert all(value == pytest.approx(2.0 - step / 1000) for step, value in loss[200:])
    assert course(run, "eval/accuracy") == []  # of step 250, before the restart went back to 200
    assert json.dumps(run.config) == '{"lr": 0.1, "seed": 0}'  # hparams are a map of protobuf's, without order
    assert run.started


def test_the_trainers_event_files_belong_to_its_output_folder_with_its_settings():
    runs, problems = read(tensorboard, WRITTEN / "trainer")
    assert problems == []
    assert sorted(runs) == ["base/seed_0", "base/seed_1", "fast/seed_0", "fast/seed_1"]
    run, state = runs["fast/seed_0"], read(trainer_state, WRITTEN / "trainer")[0]["fast/seed_0"]
    assert run.config["learning_rate"] == 0.2
    for ours, theirs in (("train/loss", "loss"), ("eval/loss", "eval_loss")):
        assert dict(course(run, ours)) == pytest.approx(dict(course(state, theirs)))


def test_runs_in_the_folders_that_summary_writer_names_itself_are_runs_each(tmp_path):
    for name, rate in (("Nov26_02-42-50_host_s0", 0.1), ("Nov26_02-42-51_host_s1", 0.2)):
        shutil.copytree(WRITTEN / f"tensorboard/lr_{rate}/seed_0", tmp_path / "runs" / name)
    for place, above in ((tmp_path, "runs/"), (tmp_path / "runs", "")):
        runs, problems = read(tensorboard, place)
        assert problems == []
        assert {name: run.config["lr"] for name, run in runs.items()} == {
            f"{above}Nov26_02-42-50_host_s0": 0.1,
            f"{above}Nov26_02-42-51_host_s1": 0.2,
        }


def write_events(folder, began, *logged, pace=0):
    """One file of events: the settings of `add_hparams`, or (tag, {step: value}); `pace`: seconds a step."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for each in logged:
        if isinstance(each, dict):
            writer.add_event(Event(wall_time=began, summary=hparams_pb(each)))
            continue
        for step, value in each[1].items():
            summary = Summary(value=[Summary.Value(tag=each[0], simple_value=value)])
            writer.add_event(Event(wall_time=began + pace * step, step=step, summary=summary))
    writer.close()


@pytest.mark.parametrize("seeds", [(0, 1), (3, 3)])
def test_hparams_of_several_trials_in_one_folder_are_runs_each_and_of_a_restart_one(seeds, tmp_path):
    """`add_hparams` in a loop with one writer, as PyTorch's page has it, writes a folder for each call."""
    for at, seed in enumerate(seeds):
        folder = tmp_path / f"study/1795660970.{at + 1}"
        write_events(folder, 1795660970 + at, {"seed": seed, "lr": 0.5}, ("hparam/loss", {0: at + 0.5}))
    runs, problems = read(tensorboard, tmp_path)
    assert problems == []
    found = {name: (run.config["seed"], course(run, "hparam/loss")) for name, run in runs.items()}
    if seeds == (3, 3):
        assert found == {"study": (3, [(0, 1.5)])}
    else:
        assert found == {"study/1795660970.1": (0, [(0, 0.5)]), "study/1795660970.2": (1, [(0, 1.5)])}


def test_a_restart_of_the_trainer_is_one_run_though_its_settings_name_its_folder(tmp_path):
    shutil.copytree(WRITTEN / "trainer/base/seed_0/runs", tmp_path / "run/runs")
    [first] = (tmp_path / "run/runs").iterdir()
    again = shutil.copytree(first, first.with_name("Nov22_13-59-15_vm"))
    for at, folder in enumerate((first, again)):
        write_events(folder / f"179535235{at}.5", 1795352350 + at, {"seed": 0, "logging_dir": folder.name})
    runs, problems = read(tensorboard, tmp_path)
    assert (sorted(runs), problems) == (["run"], [])
    assert len(course(runs["run"], "train/loss")) == 4


def test_a_torn_and_a_flipped_event_file(tmp_path):
    shutil.copytree(WRITTEN / "tensorboard/lr_0.1/seed_0", tmp_path / "torn")
    [file, again] = sorted((tmp_path / "torn").iterdir())
    again.unlink()
    whole = file.read_bytes()
    file.write_bytes(whole[:5007])
    runs, [problem] = read(tensorboard, tmp_path)
    assert 50 < len(course(runs["torn"], "loss")) < 300
    assert f"{file}: is cut off or damaged after byte" in problem
    middle = whole.index(b"loss", 3000) + 6  # within a record's data
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    runs, [problem] = read(tensorboard, tmp_path)
    assert len(course(runs["torn"], "loss")) == 299
    assert "is damaged, so it is left out" in problem


def accumulated(folder):
    """{tag: [(step, value)]} as TensorBoard itself reads a folder; of a step that was logged twice, the last value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    peer = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: sorted({e.step: e.value for e in peer.Scalars(tag)}.items()) for tag in peer.Tags()["scalars"]}


def test_many_kinds_of_events_are_read_as_tensorboard_reads_them(tmp_path, monkeypatch):
    """Steps of one to five bytes, values of 32 and 64 bits, several in one event, text, images, tags of one length."""
    torch = pytest.importorskip("torch")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.types_pb2 import DT_DOUBLE
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from torch.utils.tensorboard import SummaryWriter

    generator = np.random.default_rng(0)
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("args", '{"lr": 0.5}')
        writer.add_image("large", torch.rand(3, 200, 200))
        for step in [*range(300), 20_000, 3_000_000, 2**40]:
            for tag in ("a/x", "a/y", "b/x", "é/z", "longer/tag"):
                writer.add_scalar(tag, float(generator.choice([generator.normal(), 0.0, np.inf, 1e-30])), step)
            writer.add_histogram("weights", generator.normal(size=50), step) if step % 50 == 0 else None
            values = [Summary.Value(tag=tag, simple_value=step / 3) for tag in ("two", "at once")]
            events = [Event(step=step, summary=Summary(value=values), wall_time=float(step))]
            events += [Event(step=step, summary=scalar_pb("tensor", step / 7), wall_time=1.0)]
            double = scalar_pb("double", 0.0)
            double.value[0].tensor.dtype = DT_DOUBLE
            double.value[0].tensor.tensor_content = np.float64(step / 11).tobytes()
            del double.value[0].tensor.float_val[:]
            events += [Event(step=step, summary=double, wall_time=1.0)]
            for event in events:
                writer.file_writer.event_writer.add_event(event)
    runs, problems = read(tensorboard, tmp_path)
    [run] = runs.values()
    known = accumulated(tmp_path)
    assert problems == []
    assert set(known) < set(run.metrics["name"].to_pylist()) | {"tensor", "double"}
    assert {tag: course(run, tag) for tag in known} == known
    assert course(run, "tensor") == [(step, float(np.float32(step / 7))) for step, _ in known["a/x"]]
    assert course(run, "double") == [(step, step / 11) for step, _ in known["a/x"]]
    assert run.config == {"lr": 0.5}
    monkeypatch.setattr(tensorboard_log, "_RECORDS", 7)  # that are verified together
    again, problems = read(tensorboard, tmp_path)
    assert ([each.metrics for each in again.values()], problems) == ([run.metrics], [])


def test_two_writers_of_the_same_tags_in_one_folder_are_named(tmp_path):
    for rank in range(2):
        values = {0: 0.5 + rank, 10: 0.3 + rank}
        write_events(tmp_path, time.time() + rank, ("loss", values), (f"rank{rank}/time", values), pace=1)
    runs, [problem] = read(tensorboard, tmp_path)
    [run] = runs.values()
    one, other = sorted(tmp_path.iterdir(), key=lambda file: b"rank1" in file.read_bytes())
    assert problem.startswith(f"{other}: logs loss at the same time as {one.name}")
    assert [value for _, value in course(run, "loss")] == pytest.approx([1.5, 1.3])


def test_folders_that_are_parts_of_a_run(tmp_path):
    """`add_scalars`, Keras's `train` and `validation`, and a folder for each rank."""
    SummaryWriter = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    with SummaryWriter(tmp_path / "lines/seed_0") as writer:
        writer.add_scalars("loss/all", {"train": 0.5, "val": 0.7}, 1)
        writer.add_scalar("lr", 0.1, 1)
    for name, value in (("train", 0.5), ("validation", 0.7)):
        write_events(tmp_path / f"keras/seed_0/{name}", 1, ("epoch_loss", {3: value}))
    for rank in range(3):
        write_events(tmp_path / f"ddp/seed_0/rank_{rank}", 1, ("loss", {3: float(rank)}))
        write_events(tmp_path / f"ddp/seed_0/rank_{rank}/kl_old", 1, ("kl", {3: float(rank)}))  # `add_scalars`
    write_events(tmp_path / "plain/train", 1, ("loss", {3: 0.5}))  # a variant of that name
    write_events(tmp_path / "plain/other", 1, ("loss", {3: 0.5}))
    runs, problems = read(tensorboard, tmp_path)
    assert {name: {m["name"]: m["value"] for m in run.metrics.to_pylist()} for name, run in runs.items()} == {
        "lines/seed_0": pytest.approx({"loss/all/train": 0.5, "loss/all/val": 0.7, "lr": 0.1}),
        "keras/seed_0": pytest.approx({"train/epoch_loss": 0.5, "validation/epoch_loss": 0.7}),
        "ddp/seed_0": {"loss": 0.0, "kl/old": 0.0},
        "plain/train": {"loss": 0.5},
        "plain/other": {"loss": 0.5},
    }
    assert problems == [
        f"{tmp_path}: only the folders of rank 0 are read; left out: ddp/seed_0/rank_1, ddp/seed_0/rank_2"
    ]
