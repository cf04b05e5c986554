"""The pieces of the editor: ridge solve, hypernetwork, scores, finding modules, putting weights back."""

import math

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tests.trainers.debias.helpers import config
from trainers.debias.editor import Ridge, applied
from trainers.debias.measure import ItemScores, batch_shares, reported, summarise, term_means
from trainers.debias.model import PrefixTree, SuffixModel
from trainers.models.causal import find_modules
from trainers.models.random_model import build_random_model
from trainers.objectives.debias import icat, language_modelling, stereotype_preferred, stereotype_probability

RULE = config().edit.modules


def tiny(architecture):
    return build_random_model(architecture, hidden=16, layers=3, heads=2, vocab=260, positions=64, seed=0)[0]


def ridge_case(n, d_in, seed=0):
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(n, d_in, generator=generator, dtype=torch.float64)
    differences = torch.randn(n, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    log_lambda = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(d_in, 5, generator=generator, dtype=torch.float64)
    return keys, differences, log_lambda, weights


@pytest.mark.parametrize(("n", "d_in"), [(4, 9), (9, 9), (20, 9), (12, 5)])
@pytest.mark.parametrize("repeated", [False, True])
def test_ridge_equals_the_plain_solve_and_its_autograd(n, d_in, repeated):
    """Rows with one key are one row of the system."""
    keys, differences, log_lambda, weights = ridge_case(n, d_in)
    same = torch.tensor([0, 1, 0, 2, 3, 0, 4, 4, 5, 1, 6, 7, *range(8)])[:n] if repeated else None
    if repeated:
        keys = keys[: len(same.unique())][same]
    plain = torch.linalg.solve(keys.T @ keys + log_lambda.exp() * torch.eye(d_in), keys.T @ differences)
    expected = torch.autograd.grad((plain * weights).sum(), (differences, log_lambda))
    ridge = Ridge(keys, log_lambda, same=same)
    assert ridge.factor.shape == (min(len(keys.unique(dim=0)), d_in),) * 2
    torch.testing.assert_close(ridge.shift(differences.detach()), plain.detach())
    torch.testing.assert_close(ridge.backward(weights), expected)


@pytest.mark.parametrize(("architecture", "kind"), [("llama", nn.Linear), ("gpt2", Conv1D)])
def test_rule_and_names_find_the_output_projections(architecture, kind):
    model = tiny(architecture)
    found = find_modules(model, RULE)
    suffix = {"llama": "mlp.down_proj", "gpt2": "mlp.c_proj"}[architecture]
    assert [module.name.endswith(f"{i}.{suffix}") for i, module in zip((1, 2), found, strict=True)] == [True, True]
    assert [module.block for module in found] == [1, 2]
    assert found[0].shape == ({"llama": 32, "gpt2": 64}[architecture], 16)
    assert isinstance(model.get_submodule(found[0].name), kind)
    assert find_modules(model, [module.name for module in reversed(found)]) == found


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_weights_come_back_to_the_last_bit_even_after_an_exception(architecture):
    model = tiny(architecture)
    suffix = SuffixModel(model, RULE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    shifts = {module.name: torch.full(module.shape, 1e6) for module in suffix.modules}
    name = suffix.modules[0].name

    def fail_while_edited():
        with applied(suffix, shifts, gradients=True):
            assert not torch.equal(model.get_submodule(name).weight, before[f"{name}.weight"])
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_while_edited()
    after = model.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert all(parameter is parameters[key] for key, parameter in model.named_parameters())


def test_shared_prefixes_are_found_once():
    tree = PrefixTree.of([[1, 5, 6, 7], [1, 5, 8, 7], [1, 9]])
    # prefixes: (1) (1 5) (1 5 6) (1 5 6 7) | (1) (1 5) (1 5 8) (1 5 8 7) | (1) (1 9)
    assert tree.rows.tolist() == [0, 1, 2, 3, 6, 7, 9]
    assert tree.inverse.tolist() == [0, 1, 2, 3, 0, 1, 4, 5, 0, 6]
    assert tree.depth.tolist() == [0, 1, 2, 3, 2, 3, 1]
    begins_with = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4], [0, 1, 4, 5], [0, 6]]
    assert [row.nonzero().flatten().tolist() for row in tree.attends] == begins_with


def test_graded_preference_is_the_share_of_the_pair_s_probability():
    """Three tokens each, P(stereo) = 0.5 * 0.2 * 0.1 and P(anti) = 0.5 * 0.3 * 0.1: the stereotype has 2 of 5 parts."""
    stereo, anti = torch.tensor([0.5, 0.2, 0.1]).log().mean(), torch.tensor([0.5, 0.3, 0.1]).log().mean()
    graded = stereotype_probability(stereo[None], anti[None], torch.tensor([3.0]))
    assert graded.tolist() == pytest.approx([0.4])
    # Of unequal length: means of log 0.1 and log 0.2 over 2 and 4 tokens, as if both had three.
    graded = stereotype_probability(torch.tensor([math.log(0.1)]), torch.tensor([math.log(0.2)]), torch.tensor([3.0]))
    assert graded.tolist() == pytest.approx([0.001 / (0.001 + 0.008)])


def test_ss_lms_and_icat_by_hand():
    stereo, anti = torch.tensor([0.2, 0.1, 0.3]), torch.tensor([0.1, 0.1, 0.4])
    assert stereotype_preferred(stereo, anti).tolist() == [1.0, 0.0, 0.0]
    lms = language_modelling(
        torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-1.0, -4.0, -3.5]), torch.tensor([-2.0, -3.0, -3.0])
    )
    assert lms.tolist() == [1.0, 0.5, 0.0]
    assert icat(0.5, 1.0) == 100.0
    assert icat(0.645, 0.9) == pytest.approx(90 * 35.5 / 50)
    assert icat(1.0, 0.9) == 0.0


def item_scores(ss, lms):
    """Scores of items with the given SS (0 or 1) and LMS (0, 0.5 or 1)."""
    rows = [
        [-2.0, -1.0 if s else -3.0, {0.0: 0.0, 0.5: -1.5 if s else -2.5, 1.0: -9.0}[m]]
        for s, m in zip(ss, lms, strict=True)
    ]
    logp = torch.tensor(rows, dtype=torch.float64)
    scores = ItemScores(logp.exp(), logp)
    assert scores.ss.tolist() == list(ss)
    assert scores.lms.tolist() == list(lms)
    return scores


def test_stereosets_official_figures_are_means_over_terms():
    """By evaluation.py of StereoSet: SS, LM score and ICAT from the means of the terms, not of the items."""
    parts = [item_scores([1, 1, 0], [1.0, 0.5, 0.0]), item_scores([0, 1], [1.0, 1.0])]
    figures = term_means(["a", "a", "a", "b", "a"], parts)
    ss, lms = (3 / 4 + 0) / 2, (2.5 / 4 + 1) / 2  # term a: items 1 to 3 and 5; term b: item 4
    assert figures == pytest.approx(
        {"ss_term_mean": ss, "lms_term_mean": lms, "icat_term_mean": 100 * lms * min(ss, 1 - ss) / 0.5}
    )
    assert summarise(parts)["ss"] == pytest.approx(3 / 5)


def test_batch_mean_is_biasedits_mean_of_means():
    """77 items in one edit batch of 128, passes of 32: 32, 32 and 13 weigh the same; then the edit batches do."""
    first = [item_scores([1, 1, 1, 0], [1.0] * 4), item_scores([0], [1.0])]
    second = [item_scores([1], [1.0])]
    figures = reported([first, second])
    assert figures["ss_batch_mean"] == pytest.approx(((0.75 + 0.0) / 2 + 1.0) / 2)
    assert figures["ss_probability"] == pytest.approx(4 / 6)
    shares = batch_shares([first, second])
    assert shares.mean() == pytest.approx(figures["ss_batch_mean"])
    assert shares.tolist() == pytest.approx([0.6875, 0.6875, 0.6875, 0.3125, -0.25, 2.0])  # 0.5 +- 6 w / 2


def test_biasedit_compares_mean_probabilities():
    """One confident token decides p, and one hopeless token lp: here they prefer different sentences."""
    anti, stereo = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.98, 0.1]).double()
    parts = [
        ItemScores(*(torch.stack([f(anti), f(stereo), f(anti)])[None] for f in (torch.mean, lambda x: x.log().mean())))
    ]
    assert summarise(parts)["ss"] == 0.0
    assert summarise(parts, "ss_probability")["ss"] == 1.0
    assert reported([parts]) == {
        name: 1.0 if name in ("ss_probability", "ss_batch_mean") else 0.5
        for name in ("ss_probability", "ss_batch_mean", "ss_probability_distance", "ss_batch_mean_distance")
    }
