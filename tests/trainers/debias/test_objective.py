"""How the terms of the study's loss are put together, on scores written down by hand."""

from functools import partial

import pytest
import torch

from tests.make_stage import parts_of
from tests.trainers.debias.helpers import config
from trainers.debias.model import SentenceScores
from trainers.debias.train import Reference, objective

GRPO = {"weight": 0.3, "reward": "balanced", "beta": 0.1, "gamma": 1.5}
RCS = {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.5, 1.0, 2.0]}


def objective_of(config):
    return partial(objective, config, parts_of(config, "train"))


def of_two_items(logp, p=None):
    """Three sentences each: anti-stereotype, stereotype, unrelated."""
    logp = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    p = logp.detach().exp() * 1.2 if p is None else torch.tensor(p, dtype=torch.float64)
    hidden = torch.zeros(6, 2, dtype=torch.float64)
    return SentenceScores(p.requires_grad_(), logp, hidden, torch.ones(6, dtype=torch.float64), torch.arange(6))


def scores(gap):
    """`gap` is lp_stereo - lp_anti of the first."""
    return of_two_items([-2.0, -2.0 + gap, -4.0, -3.0, -2.5, -5.0])


REFERENCE = Reference(
    torch.tensor([0.02, 0.01], dtype=torch.float64), torch.zeros(4, 2).double(), torch.full((4,), -0.75).double()
)


@pytest.mark.parametrize("fairness", [0.0, 0.2])
@pytest.mark.parametrize("gap", [1.0, -1.0])
def test_the_curriculum_weighs_edit_and_reward_and_not_retention(gap, fairness):
    settings = config(grpo=GRPO, rcs=RCS, loc_coef=2.0, mo_fairness_weight=fairness)
    loss, figures = objective_of(settings)(scores(gap), REFERENCE, 0.0)
    weight = figures["rcs_weight"]
    # both items stereotyped: |SS - 0.5| = 0.5 and alpha 2; one: 0 and alpha 0.5. The reward is 0.5 - (1 + 0.5) / 2.
    assert weight == pytest.approx(1 + (2.0 if gap > 0 else 0.5) * (0.5 - -0.25))
    assert figures["kl"] == pytest.approx(0.25)
    combined = 0.7 * figures["edit_loss"] + 0.3 * (-1.5 * -0.25 + 0.1 * 0.25)
    assert loss.item() == pytest.approx(weight * combined + 2.0 * figures["loc_loss"] + fairness * 0.75)


def test_the_reward_of_a_batch_lets_pairs_cancel():
    made = of_two_items([-2.0, -1.0, -4.0, -2.5, -3.5, -5.0])  # gaps of +1 and -1
    rewards = {
        r: objective_of(config(grpo=GRPO | {"reward": r}))(made, REFERENCE, 0.0)[1]["reward"]
        for r in ("balanced", "balanced_batch")
    }
    assert rewards == pytest.approx({"balanced": -0.5, "balanced_batch": 0.5})


def test_the_curriculum_sees_ss_by_the_score_that_the_configuration_names():
    # By log-probability the stereotype wins both pairs, by probability one of two.
    made = of_two_items([-2.0, -1.0, -4.0, -3.0, -2.5, -5.0], [0.3, 0.2, 0.1, 0.2, 0.3, 0.1])
    for kind, distance, alpha in (("log_probability", 0.5, 2.0), ("probability", 0.0, 0.5)):
        _, figures = objective_of(config(grpo=GRPO, rcs=RCS, ss=kind))(made, REFERENCE, 0.0)
        assert (figures["ss_distance"], figures["rcs_alpha"]) == (distance, alpha)


def test_the_fairness_term_is_a_larger_gamma():
    """fairness = 0.5 - reward, so v10 is v8 with gamma + mo_fairness_weight / (weight * rcs_weight), and a constant."""
    made = scores(1.0)
    settings = config(grpo=GRPO, rcs=RCS, mo_fairness_weight=0.2)
    loss, figures = objective_of(settings)(made, REFERENCE, 0.0)
    assert figures["fairness"] == pytest.approx(0.5 - figures["reward"])
    gamma = GRPO["gamma"] + 0.2 / (GRPO["weight"] * figures["rcs_weight"])
    other, _ = objective_of(config(grpo=GRPO | {"gamma": gamma}, rcs=RCS))(made, REFERENCE, 0.0)
    torch.testing.assert_close(
        torch.autograd.grad(loss, made.logp, retain_graph=True), torch.autograd.grad(other, made.logp)
    )
    assert (loss - other).item() == pytest.approx(0.2 * 0.5)
