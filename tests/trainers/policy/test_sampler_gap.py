"""The gap between the sampler's log-probabilities and the policy's: what it is, and that stale weights end a run."""

import copy
from dataclasses import replace

import pytest
import torch
import yaml

from ablation.contract.health import Monitor, evaluate, parse_rules
from tests.make_stage import make_stage
from tests.trainers.parallel.copying import Copying, Frozen
from tests.trainers.policy.helpers import SMALL, sampled_batch
from tests.trainers.policy.helpers import actor as make_actor
from trainers.policy import reinforce
from trainers.policy.build import build
from trainers.policy.config import PolicyConfig, Precision, Update
from trainers.policy.grpo import LIMITS, sampler_gap, step
from trainers.policy.learner import per_token_logps
from trainers.policy.models import Placement
from trainers.running.stage import Diverged

NAMES = ("rollout/logp_gap", "rollout/logp_gap_limit")


def gap_rules(study, stage="reinforce"):
    """The rules of the study's file about the gap, of a stage."""
    with open(f"configs/studies/{study}/_study.yaml", encoding="utf-8") as file:
        declared = yaml.safe_load(file)["health"]
    chosen = [rule for rule in declared if rule["metric"] == "rollout/logp_gap" and stage in rule["stage"]]
    return parse_rules({**rule, "stage": stage} for rule in chosen)


def broken(rules, steps):
    """The ids of the rules that the metrics of steps break."""
    series = {name: [(number + 1, metrics[name]) for number, metrics in enumerate(steps)] for name in NAMES}
    return {event.rule.id for event in evaluate(rules, series)}


def fast_stage(folder, inputs, **changes):
    """A stage that moves the weights far."""
    config = PolicyConfig(**{**SMALL, "update": Update(lr=3e-2, warmup_steps=0), **changes})
    return make_stage(folder, "gspo.reinforce", config, inputs, seed=0)


def frozen(run):
    """A sampler whose copy of the weights nobody refreshes."""
    return replace(run, sampler=replace(run.sampler, model=copy.deepcopy(run.sampler.model)))


STUDIES = ("gspo", "innovations")
BROKEN = {"sampler-differs", "stale-rollouts"}


def test_a_sampler_that_keeps_old_weights_is_warned_of_and_ends_the_run(prepared, tmp_path):
    """What the GAD notes, section 18, believe of vLLM: weights of the start, for ever."""
    fresh, stale = (build(fast_stage(tmp_path / name, prepared)) for name in ("fresh", "stale"))
    stale = frozen(stale)
    steps = [[step(run, number) for number in range(4)] for run in (fresh, stale)]
    assert max(metrics["rollout/logp_gap"] for metrics in steps[0]) < 1e-5
    assert steps[1][0]["rollout/logp_gap"] < 1e-5  # before the first update it is the policy
    for study in STUDIES:
        assert not broken(gap_rules(study), steps[0])
        assert broken(gap_rules(study), steps[1]) == BROKEN


def test_so_is_a_rank_that_does_not_refresh_its_copy(prepared, tmp_path):
    for ranks, expected in ((Copying(), set()), (Frozen(), BROKEN)):
        made = fast_stage(tmp_path / type(ranks).__name__, prepared, precision={"compute": "bfloat16"})
        made.ranks = ranks
        run = build(made)
        steps = [step(run, number) for number in range(4)]
        assert all(broken(gap_rules(study), steps) == expected for study in STUDIES)
        assert steps[0]["rollout/logp_gap"] > 1e-5  # what bfloat16 rounds would break the limit of float32


def test_the_rule_ends_a_stage(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(reinforce, "build", lambda stage: frozen(build(stage)))
    made = fast_stage(tmp_path / "stage", prepared)
    made.monitor = Monitor(gap_rules("gspo"))
    with pytest.raises(Diverged, match="sampled with weights that are not the policy's"):
        reinforce.run(made)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_gap_is_the_mean_over_tokens(model, prompts, recompute):
    """By hand; where old log-probabilities are recomputed, of all responses, with or without an advantage."""
    advantages = torch.ones(16)
    advantages[::3] = 0
    batch = sampled_batch(model, prompts, advantages)
    run = make_actor(model, Update(), lr=0.1, kl={"kl_coef": 0.0}, recompute_logps=recompute)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
        now, _ = per_token_logps(model, batch.sequences)
    built = run.batch(batch.sequences, advantages)
    differences = (now - batch.sequences.logps).abs()
    rows = torch.arange(0, 16, 1 if recompute else 2)
    mask = batch.sequences.completion_mask[rows].bool()
    expected = differences[rows][mask].mean()
    assert expected > 0.01
    found = sampler_gap(run, built, "bfloat16")
    assert found == {"rollout/logp_gap": pytest.approx(expected.item(), rel=1e-5), "rollout/logp_gap_limit": 0.05}


def test_products_are_of_tf32_where_that_is_declared():
    for compute in ("tf32", "bfloat16", "float32"):
        Placement.of(["cpu"], Precision(compute=compute))
        assert torch.backends.cuda.matmul.allow_tf32 is (compute == "tf32")
        assert compute in LIMITS
