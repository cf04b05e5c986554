"""A warm start that ends at an accuracy."""

import math

import pytest
import torch

from tests.trainers.policy.helpers import SMALL, stage
from trainers.policy import warm_start
from trainers.policy.config import PolicyConfig, Until
from trainers.policy.models import load_policy, load_tokenizer
from trainers.tasks.interface import read_problems
from trainers.tasks.knights_knaves import create


def train(folder, prepared, until):
    start = SMALL["warm_start"].model_copy(update={"until": until})
    made = stage(folder, PolicyConfig(**{**SMALL, "warm_start": start}), {"task_data": prepared["task_data"]})
    warm_start.run(made)
    series = {}
    for step, name, value in made.metrics.rows:
        series.setdefault(name, {})[step] = value
    return series, (folder / "policy" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def never(prepared, tmp_path_factory):
    """A warm start whose accuracy is measured four times and is out of reach."""
    return train(tmp_path_factory.mktemp("never"), prepared, Until(accuracy=1.0, problems=30, every=20))


def test_without_reaching_it_all_steps_are_taken_and_measuring_changes_nothing(prepared, never):
    series, weights = never
    words = len(load_tokenizer(prepared["warm_start"] / "policy"))
    assert next(iter(series["warm_start/loss"].values())) == pytest.approx(math.log(words), rel=0.3)  # of a token
    assert list(series["warm_start/accuracy"]) == [20, 40, 60, 80]
    assert series["warm_start/steps"] == {80: 80}
    last = series["warm_start/accuracy"][80]
    assert series["warm_start/short"] == {80: pytest.approx(1 - last)}
    assert weights == (prepared["warm_start"] / "policy" / "model.safetensors").read_bytes()


def test_it_ends_at_the_first_measurement_that_suffices(prepared, never, tmp_path):
    accuracies = never[0]["warm_start/accuracy"]
    goal = max(accuracies.values())
    assert goal > 0, "the test would compare nothing"
    first = next(step for step, accuracy in accuracies.items() if accuracy == goal)
    until = Until(accuracy=goal, problems=30, every=20)
    series, weights = train(tmp_path / "run", prepared, until)
    assert series["warm_start/accuracy"] == {step: value for step, value in accuracies.items() if step <= first}
    assert series["warm_start/steps"] == {first: first}
    assert series["warm_start/short"] == {first: 0}
    assert max(series["warm_start/loss"]) < first
    again, same = train(tmp_path / "again", prepared, until)  # as after a kill: a warm start begins again
    assert (again, same) == (series, weights)
    assert answered(tmp_path / "run", prepared, 30) == pytest.approx(goal)


def answered(folder, prepared, count):
    """The share of right greedy responses to the first training problems, with transformers' own sampler."""
    model = load_policy(folder / "policy", torch.device("cpu"))
    tokenizer, task = load_tokenizer(folder / "policy"), create(PolicyConfig().task)
    right = 0
    for problem in read_problems(prepared["task_data"] / "train.jsonl")[:count]:
        ids = torch.tensor([tokenizer.encode(problem.prompt, add_special_tokens=False)])
        with torch.no_grad():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=20)
        right += task.correct(problem, tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    return right / count
