"""What the variants of a seed share is drawn again for every seed; the items of the test set are not."""

import pandas as pd
import torch
from safetensors.torch import load_file

from tests.trainers.demonstrations import helpers as demonstrations
from tests.trainers.gad import helpers as gad
from tests.trainers.policy.helpers import SMALL, stage
from trainers.demonstrations.prepared import CANDIDATES
from trainers.policy import task_data, warm_start
from trainers.policy.config import PolicyConfig, WarmStart
from trainers.running.stage import run_seed


def weights(folder):
    (file,) = folder.glob("**/model.safetensors")
    return load_file(file)


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def test_a_seed_is_that_of_the_run():
    assert run_seed(None) == 0
    seeds = [run_seed(run) for run in range(9)]
    assert len(set(seeds)) == 9
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert run_seed(1) == int("5cc3a6551605a0b4", 16) % 2**31  # printf '0 1' | sha256sum


def assert_of_the_seed(one, again, other):
    """Weights and what else was drawn: the same with the same seed, and all different with another."""
    assert same(one[0], again[0])
    assert not same(one[0], other[0])
    assert one[1] == again[1] != other[1]


def test_a_warm_start_has_weights_and_an_order_of_its_seed(tmp_path):
    config = PolicyConfig(**{**SMALL, "warm_start": WarmStart(steps=1, batch_size=2, lr=1e-9)})
    task_data.run(stage(tmp_path / "task_data", config, {}))
    found = []
    for number, seed in enumerate((0, 0, 1, None)):
        made = stage(tmp_path / str(number), config, {"task_data": tmp_path / "task_data"}, seed)
        warm_start.run(made)
        (loss,) = [value for _, metric, value in made.metrics.rows if metric == "warm_start/loss"]
        found.append((weights(tmp_path / str(number)), loss))
    for other in found[2:]:
        assert_of_the_seed(found[0], found[1], other)


def test_a_students_base_and_distillation_are_those_of_the_seed(tmp_path):
    settings = gad.config(base={"steps": 1}, seqkd={"max_steps": 1})
    gad.run_stage(tmp_path, "data", settings)
    inputs = {"data": tmp_path / "data"}
    for name in ("base", "seqkd"):
        found = []
        for number, seed in enumerate((0, 0, 1)):
            out = tmp_path / name / str(number)
            table = gad.run_stage(tmp_path, name, settings, seed=seed, inputs=inputs, out=out)
            found.append((weights(out), table.loc[table["name"].str.endswith("/loss"), "value"].tolist()))
        assert_of_the_seed(*found)
        inputs[name] = tmp_path / name / "0"  # the same for all: what differs is the next stage's own


def test_an_in_context_model_and_its_candidates_are_those_of_the_seed(tmp_path):
    settings = demonstrations.config(learner={"steps": 1})
    found = []
    for number, seed in enumerate((0, 0, 1)):
        folders = demonstrations.shared(tmp_path / str(number), settings, seed=seed)
        pointers = pd.read_parquet(folders["candidates"] / CANDIDATES)["pointer"].map(list).tolist()
        found.append((weights(folders["learner"]), pointers))
    assert_of_the_seed(*found)
