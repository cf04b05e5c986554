"""Rollouts by the current student, and what the faults of the source show."""

import copy

import pytest

from tests.trainers.gad.helpers import config, gad_stage, inputs_of, run_stage, series, trainer
from tests.trainers.parallel.copying import Copying, Frozen
from tests.trainers.policy.test_sampler_gap import broken, gap_rules
from trainers.gad.adversarial import Trainer
from trainers.gad.rollouts import steps_taken


def test_stale_weights_are_noticed(root):
    """A sampler with a copy of the weights: the counter that the copy carries stays behind.

    The gap of the log-probabilities shows it too, and would also for a sampler that carries no counter.
    """
    run = trainer(root, config(warmup={"critic_warmup": 0, "actor_lr": 1e-2}))
    run.rollouts.model = copy.deepcopy(run.student)
    found = [run.step(step) for step in range(3)]
    assert [metrics["rollout/policy_lag"] for metrics in found] == [0.0, 2.0, 4.0]  # two minibatches a step
    gaps = [metrics["rollout/logp_gap"] for metrics in found]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 0.5  # what the rule stale-rollouts ends a run for
    run.rollouts.model = run.student
    last = run.step(3)
    assert last["rollout/policy_lag"] == 0
    assert last["rollout/logp_gap"] < 1e-5
    assert steps_taken(run.student) == 8


def test_a_rank_that_does_not_refresh_its_copy_breaks_the_rules(root):
    settings = config(warmup={"critic_warmup": 0, "actor_lr": 1e-2}, precision={"compute": "bfloat16"})
    for ranks, expected in ((Copying(), set()), (Frozen(), {"sampler-differs", "stale-rollouts"})):
        stage = gad_stage(root / "warmup", settings, inputs_of(root, "warmup"))
        stage.ranks = ranks
        run = Trainer(stage)
        assert broken(gap_rules("gad", "warmup"), [run.step(step) for step in range(4)]) == expected


def test_identical_responses_give_no_signal(root):
    faulty = config(sampling={"temperature": None}, rollout={"group_size": 4})
    table = run_stage(root, "warmup", faulty)
    assert set(series(table, "reward/group_std")) == {0.0}
    assert set(series(table, "reward/zero_std_groups")) == {1.0}
    assert set(series(table, "rollout/distinct")) == {0.25}
    assert set(series(table, "actor/pg_loss").abs()) == {0.0}
    healthy = series(run_stage(root, "gad", config(warmup={"enabled": False})), "actor/pg_loss").abs()
    assert healthy.min() > 1e-4


def test_the_limit_follows_the_teachers_lengths(root):
    limits = {}
    for factor in (1.0, 3.0):
        settings = config(sampling={"length_factor": factor}, warmup={"max_steps": 2})
        table = run_stage(root, "warmup", settings, out=root / f"factor {factor}")
        limits[factor] = series(table, "response_length/limit").iloc[0]
        assert limits[factor] / series(table, "response_length/teacher_p99").iloc[0] == pytest.approx(factor, rel=0.05)
        assert series(table, "response_length/max").max() <= limits[factor]
    assert limits[3.0] > 2.9 * limits[1.0]
