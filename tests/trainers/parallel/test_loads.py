"""Two processes load, save and checkpoint what one does, bit by bit, and none but the first holds a whole model."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ablation.runner.ranks import ALONE, Ranks
from tests.repository import ROOT
from tests.trainers.parallel import loads
from trainers.export import export
from trainers.running import checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("loads")
    loads.prepare(found)
    return found


@pytest.fixture(scope="module")
def alone(folder):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on them
    found = loads.cases(ALONE, folder)
    losses = loads.resume(ALONE, folder, "one", "alone", 2)
    torch.set_num_threads(threads)
    return *found, losses


@pytest.fixture(scope="module")
def together(folder):
    loads.prepare_large(folder)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(Path(loads.__file__)), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(folder / "tensors.safetensors"), json.loads((folder / "said.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", loads.CASES)
def test_a_model_that_one_rank_reads_is_the_same_in_all(case, alone, together):
    tensors, said, _ = alone
    names = [name for name in tensors if name.startswith(f"{case}/")]
    assert names == [name for name in tensors if name.startswith(f"{case}/") and name in together[0]]
    assert names
    for name in names:
        assert torch.equal(together[0][name], tensors[name]), name
    for of_rank in together[1]["cases"]:
        assert of_rank[case] == said[case]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "gpt2", "critic"])
def test_a_saved_model_is_the_same_files(name, folder, alone, together):
    one, two = (folder / f"saved by {count}" / name for count in (1, 2))
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    for path in one.iterdir():
        if path.suffix == ".json":
            assert path.read_text() == (two / path.name).read_text()
            continue
        mine, theirs = load_file(path), load_file(two / path.name)
        assert mine.keys() == theirs.keys()  # a tied matrix once
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    if name != "critic":
        assert AutoModelForCausalLM.from_pretrained(two).lm_head.weight.isfinite().all()


@pytest.mark.slow
def test_several_ranks_go_on_from_one_process_and_one_from_several(folder, alone, together):
    losses = alone[2]
    assert together[1]["losses"] == pytest.approx(losses, abs=1e-12)
    one, two = (checkpoint.load(folder / name) for name in ("alone", "two"))
    assert (one.step, two.step) == (3, 3)
    assert one.tensors.keys() == two.tensors.keys()
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(two.tensors[name], tensor, rtol=0, atol=1e-10, msg=name)
    mine, theirs = (loads.resume(ALONE, folder, source, "next", 2) for source in ("alone", "two"))
    assert theirs == pytest.approx(mine, abs=1e-9)
    assert abs(mine[0] - losses[0]) > 1e-3  # else nothing was learnt


@pytest.mark.slow
def test_a_checkpoint_of_several_is_one_of_torch_without_pickles(folder, together):
    files = sorted(str(path.relative_to(folder / "two")) for path in (folder / "two").rglob("*.*"))
    assert files == ["a/1-of-2-00000.safetensors", "a/2-of-2-00000.safetensors", "state.json"]
    with safe_open(folder / "two" / files[1], framework="pt") as second:
        assert second.get_slice("model/model.embed_tokens.weight").get_shape()[0] == 19 - 1  # of 37 or 36 rows


@pytest.mark.slow
def test_the_model_of_a_checkpoint_of_several_is_exported_as_that_of_one(folder, alone, together, tmp_path):
    for source in ("alone", "two"):
        export(folder / source, tmp_path / source, described_by=folder / "qwen2")
    one, two = (load_file(tmp_path / source / "model.safetensors") for source in ("alone", "two"))
    assert one.keys() == two.keys() == load_file(folder / "qwen2" / "model.safetensors").keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-10, msg=name)
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "two")
    written = checkpoint.load(folder / "two").tensors
    for name, value in trained.state_dict().items():
        assert torch.equal(value, written[f"model/{name}"])
    with pytest.raises(ValueError, match="name the base model's folder"):
        export(folder / "two", tmp_path / "nameless")
    (folder / "two" / "state.json").rename(folder / "two" / "kept")
    (folder / "two" / "state.json").write_text("{")
    with pytest.raises(ValueError, match="is incomplete"):
        export(folder / "two", tmp_path / "torn", described_by=folder / "qwen2")
    (folder / "two" / "kept").rename(folder / "two" / "state.json")


@pytest.mark.slow
def test_a_rank_that_finds_its_file_damaged_has_all_begin_anew(together):
    assert together[1]["damaged"] == [[True, False], [True, False]]


@pytest.mark.slow
def test_only_the_first_rank_ever_holds_a_whole_model(together):
    """In MB, of a model of 60M parameters; its largest block takes 17, its largest tensor 4."""
    first, second = together[1]["memory"]
    whole = first["share"] + second["share"]
    assert whole == pytest.approx(228, abs=1)
    assert second["load"] < second["share"] + 90
    assert first["load"] < whole + first["share"] + 90
    for rank in (first, second):
        assert rank["checkpoint"] < 150  # one file, of three times its share that it writes
        assert rank["read"] < 3 * rank["share"] + 90
    assert first["save"] < whole + 90
    assert second["save"] < second["share"]


class Two(Ranks):
    """Two processes that meet through files, without torch.distributed: a checkpoint needs no more."""

    size = 2

    def __init__(self, rank, folder):
        self.rank, self.folder, self.count = rank, folder, 0

    def gather(self, found):
        self.count += 1
        for rank in range(2):
            path = self.folder / f"{self.count} {rank}"
            if rank == self.rank:
                path.with_suffix(".new").write_text(json.dumps(found))
                path.with_suffix(".new").rename(path)
        paths = [self.folder / f"{self.count} {rank}" for rank in range(2)]
        while not all(path.exists() for path in paths):
            time.sleep(0.0002)
        return [json.loads(path.read_text()) for path in paths]

    def same(self, value):
        return self.gather(value)[0]


def test_kill_9_of_any_rank_at_any_moment_leaves_a_whole_checkpoint(tmp_path, monkeypatch):
    """Two forks write one after the other; one is killed, and the other soon after, as the launcher has it."""

    def half(tensor, ranks):
        rows = len(tensor) // 2
        zeros = [0] * (tensor.dim() - 1)
        return (tensor[:rows], [0, *zeros]) if ranks.rank == 0 else (tensor[rows:], [rows, *zeros])

    monkeypatch.setattr(checkpoint, "part_of", half)
    choose, last = random.Random(0), -1
    for attempt in range(12):
        meeting = tmp_path / f"meeting {attempt}"
        meeting.mkdir()
        found = checkpoint.load(tmp_path / "c")
        begin = 0 if found is None else found.step
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                ranks = Two(rank, meeting)
                try:
                    for step in range(begin + 1, 10**6):
                        state = {"step": step}
                        tensors = {"w": torch.full((4, 5000), float(step)), "one": torch.full((2,), float(step))}
                        checkpoint.save(tmp_path / "c", step, tensors, state, ranks)
                finally:
                    os._exit(1)
            children.append(child)
        time.sleep(0.3 + choose.random() / 4)
        choose.shuffle(children)
        for child in children:
            os.kill(child, signal.SIGKILL)
            time.sleep(choose.random() / 100)
        for child in children:
            os.waitpid(child, 0)
        step, tensors, state = checkpoint.load(tmp_path / "c")
        assert state == {"step": step}
        assert torch.equal(tensors["w"], torch.full((4, 5000), float(step)))
        assert tensors["one"].tolist() == [step, step]
        assert step >= last
        last = step
    assert last > 12
    monkeypatch.undo()
    checkpoint.save(tmp_path / "c", 0, {"w": torch.ones(2)}, {})  # one process afterwards
    left = sorted(path.name for path in (tmp_path / "c").rglob("*.*"))
    assert left == ["1-of-1-00000.safetensors", "state.json"]
