"""Rewards, advantages and losses of policies that choose demonstrations; "the notes" are the source of that study."""

from typing import Any

import torch
from torch import Tensor

from trainers.objectives.losses import k3
from trainers.objectives.surrogates import clip_surrogate


# Groups of unequal size: queries have different numbers of sequences. `present`, (Q, N) bool, says in every function
# which places hold a sequence; None: all. In the others weights and advantages are 0.
def everything(values: Tensor) -> Tensor:
    """Return the mask (Q, N) of a table without empty places."""
    return torch.ones_like(values, dtype=torch.bool)


def mean_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean of each row's filled places, (Q, 1) of values (Q, N)."""
    return torch.where(present, values, 0.0).sum(-1, keepdim=True) / present.sum(-1, keepdim=True)


def all_equal(values: Tensor, present: Tensor) -> Tensor:
    """Return whether a row's filled places hold one value, (Q, 1) bool; a row of one place does."""
    low = torch.where(present, values, torch.inf).amin(-1, keepdim=True)
    high = torch.where(present, values, -torch.inf).amax(-1, keepdim=True)
    return low == high


def positions(values: Tensor, present: Tensor, *, descending: bool) -> Tensor:
    """Return the place of each filled place in the sorted row, from 0, (Q, N); the first of equals comes first.

    Empty places come last.
    """
    sortable = values.masked_fill(~present, -torch.inf if descending else torch.inf)
    order = sortable.argsort(dim=-1, descending=descending, stable=True)
    return order.argsort(dim=-1).to(values.dtype)


def midranks(values: Tensor, present: Tensor) -> Tensor:
    """Return how many filled places of the row are higher, (Q, N); equal values share the mean of their ranks.

    The highest value has rank 0. Empty places get a rank that means nothing.
    """
    others = present[..., None, :]
    better = (others & (values[..., None, :] > values[..., :, None])).sum(-1)
    ties = (others & (values[..., None, :] == values[..., :, None])).sum(-1) - 1
    return better.to(values.dtype) + 0.5 * ties.clamp(min=0)


# Reward modes. Each function takes, (Q, N) and NaN where missing: `correct`, 1 where the query was answered right after
# the sequence, else 0; `acc_score`, soft accuracy in [0, 1]; `info_score`, the gain over zero-shot in the unit of
# `reward.gain`; and `settings`, the `reward` of the configuration.
def missing_as_zero(values: Tensor) -> Tensor:
    """Return `values` with 0 instead of NaN: an unknown score earns nothing (the notes)."""
    return torch.where(values.isnan(), 0.0, values)


# Reward mode `legacy`: the information gain, as in the selectors before correctness was a reward (the notes).
def legacy_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return info_weight info_score + correct_weight right, (Q, N); what is missing counts as 0.

    right is `correct`, and `acc_score` where that is missing, as in the source's code. Its scheme 5, only correctness,
    is info_weight = 0 and correct_weight = 1 (REWARD_ALPHA and REWARD_BETA).
    """
    right = torch.where(correct.isnan(), missing_as_zero(acc_score), correct)
    return settings.info_weight * missing_as_zero(info_score) + settings.correct_weight * right


# Reward mode `hard_plus_soft` (the notes): positives [1, 2] and negatives [0, 1) at weights of 1.
def hard_plus_soft_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return hard_weight correct + soft_weight acc_score, (Q, N); what is missing counts as 0."""
    return settings.hard_weight * missing_as_zero(correct) + settings.soft_weight * missing_as_zero(acc_score)


# Reward mode `hard_plus_soft_v2` (the notes, scheme 1): positives [2, 3] and negatives [0, 1] at weights of 1.
def hard_plus_soft_v2_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return soft_weight acc_score + 2 hard_weight correct, (Q, N); what is missing counts as 0."""
    return settings.soft_weight * missing_as_zero(acc_score) + 2.0 * settings.hard_weight * missing_as_zero(correct)


# Reward mode `hybrid` (the notes, scheme 2): information gain and correctness mixed.
def hybrid_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return alpha gain + (1 - alpha) (correct + acc_score / 2), (Q, N), gain = min(1, info_scale info_score).

    What is missing counts as 0. The source assumes gains of 0 to 0.1, so that info_scale = 10 fills [0, 1]; larger
    gains all count as 1. In the source's code a loss has no lower bound; the text of its scheme 2 normalises the gain
    to [0, 1] (`normalize_beam_score`), which is info_floor = 0.
    """
    gain = (settings.info_scale * missing_as_zero(info_score)).clamp(min=settings.info_floor, max=1.0)
    right = missing_as_zero(correct) + 0.5 * missing_as_zero(acc_score)
    return settings.alpha * gain + (1.0 - settings.alpha) * right


# Reward mode `separated`: a gap between positives (at least 2) and negatives (at most 1), whatever the weights.
def separated_rewards(correct: Tensor, acc_score: Tensor, info_score: Tensor, settings: Any) -> Tensor:
    """Return max(2, 2 hard_weight + soft_weight acc_score) of positives, (Q, N); what is missing counts as 0.

    Negatives get min(1, soft_weight acc_score).

    At weights of 1 this is `hard_plus_soft_v2`; with others it keeps the gap where that formula would close it.
    """
    positive = missing_as_zero(correct) >= 1
    soft = settings.soft_weight * missing_as_zero(acc_score)
    return torch.where(positive, (2.0 * settings.hard_weight + soft).clamp(min=2.0), soft.clamp(max=1.0))


# Reward-weighted cross-entropy over candidate sequences (RCE): good sequences are imitated more.
def rce_weights(rewards: Tensor, tau: float, present: Tensor | None = None) -> Tensor:
    """Return softmax(rewards / tau) over a query's sequences, (Q, N) of rewards (Q, N); tau -> 0 picks the best."""
    present = everything(rewards) if present is None else present
    return (rewards / tau).masked_fill(~present, -float("inf")).softmax(-1)


def best_only(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return weights (Q, N): 1 for the sequence of a query with the highest reward, the first of equals, else 0."""
    present = everything(rewards) if present is None else present
    best = rewards.masked_fill(~present, -float("inf")).argmax(-1, keepdim=True)
    return torch.zeros_like(rewards).scatter(-1, best, 1.0)


def tau_at(step: int, steps: int, start: float, end: float) -> float:
    """Return the temperature of a step: linear from `start` at step 0 to `end` at the last of `steps`."""
    return start + (end - start) * (step / (steps - 1) if steps > 1 else 1.0)


def smoothed_cross_entropy(step_logps: Tensor, pointers: Tensor, free: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy (Q, N), mean over the steps, of sequences.

    The target of a step is 1 - smoothing on the choice plus smoothing spread evenly over all candidates that are still
    free at that step (the choice among them); masked candidates get none (Szegedy et al., arXiv 1512.00567).

    Args:
        step_logps: (Q, N, S, K) log-probabilities of the candidates at each step.
        pointers: (Q, N, S) int64 choices.
        free: (Q, N, S, K) bool, not chosen at an earlier step.
        smoothing: in [0, 1).
    """
    choice = step_logps.gather(-1, pointers[..., None]).squeeze(-1)
    spread = step_logps.where(free, 0.0).sum(-1) / free.sum(-1)
    return -((1.0 - smoothing) * choice + smoothing * spread).mean(-1)


def rce_loss(weights: Tensor, losses: Tensor) -> Tensor:
    """Return the mean over queries of sum_n weights_n losses_n; both (Q, N)."""
    return (weights * losses).sum(-1).mean()


# Rank-normalised rewards for the weights of RCE (the notes, cause 3), where equal rewards share their rank.
def rank_normalised(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 for the best of a query's n sequences, 0 for the worst, (n - 1 - rank) / (n - 1), (Q, N) of (Q, N).

    So all queries without ties get the same weights, which is what the notes criticise. Equal rewards share the mean of
    their ranks; the seed ranks them by position (`rce_position`). A query with one sequence gets 0.
    """
    present = everything(rewards) if present is None else present
    last = present.sum(-1, keepdim=True) - 1
    return (last - midranks(rewards, present)) / last.clamp(min=1)


# Ranks as rewards, ties by position: `compute_rce_loss` of `pointer_selector_v3.py` (the notes, cause 3).
def position_normalised(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 0 for the worst of a query's n sequences, 1 for the best, rank / (n - 1), (Q, N) of (Q, N).

    The seed sorts in ascending order here, so that the last of equal rewards has the highest rank, where in its
    advantages the first has. A query with one sequence gets 0.
    """
    present = everything(rewards) if present is None else present
    last = (present.sum(-1, keepdim=True) - 1).clamp(min=1)
    return positions(rewards, present, descending=False) / last


# Rank advantages: 1 for the best sequence of a query, -1 for the worst, whatever the distances (the notes, cause 2).
def rank_advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of a query's n sequences, (Q, N) of rewards (Q, N).

    Equal rewards share the mean of their ranks (midranks), so a query whose rewards are all equal gets exactly 0. The
    seed ranks ties by position (`advantage_position`). A query with one sequence gets 0.
    """
    present = everything(rewards) if present is None else present
    count = present.sum(-1, keepdim=True)
    signal = 1.0 - 2.0 * midranks(rewards, present) / (count - 1).clamp(min=1)
    return torch.where(present & (count > 1), signal, 0.0)


# Rank advantages with ties by position: `compute_advantage` of `pointer_selector_v3.py` (the notes, cause 2).
def position_advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return 1 - 2 rank / (n - 1), rank 0 for the best of a query's n sequences, (Q, N) of rewards (Q, N).

    The first of equal rewards has the better rank, so a query without any right sequence gets 1 to -1: the defect that
    the seed diagnoses. A query with one sequence gets 0.
    """
    present = everything(rewards) if present is None else present
    count = present.sum(-1, keepdim=True)
    signal = 1.0 - 2.0 * positions(rewards, present, descending=True) / (count - 1).clamp(min=1)
    return torch.where(present & (count > 1), signal, 0.0)


# Z-score advantages with a floor under the standard deviation (the notes, scheme 3).
MIN_STD = 0.1  # below it rewards differ by noise, and dividing by it would blow the noise up


def zscore_advantages(rewards: Tensor, present: Tensor | None = None) -> Tensor:
    """Return (R - mean) / max(std, 0.1) over a query's sequences, (Q, N) of rewards (Q, N).

    std is the sample standard deviation (n - 1), as torch's default in the source. Rewards that are all equal, and so a
    query with one sequence, give exactly 0.
    """
    present = everything(rewards) if present is None else present
    centred = torch.where(present, rewards - mean_present(rewards, present), 0.0)
    freedom = (present.sum(-1, keepdim=True) - 1).clamp(min=1)
    std = (centred.square().sum(-1, keepdim=True) / freedom).sqrt()
    return torch.where(all_equal(rewards, present), 0.0, centred / std.clamp(min=MIN_STD))


# Conditional training: queries with too few positive sequences give no loss (the notes, scheme 4).
def positives(rewards: Tensor, correct: Tensor, threshold: float | None) -> Tensor:
    """Return which sequences are positive, (Q, N) bool.

    threshold: as in the source, those whose reward exceeds it; None: those after which the answer is right (a missing
    `correct` counts as wrong).
    """
    return missing_as_zero(correct) >= 1 if threshold is None else rewards > threshold


def trained_queries(positive: Tensor, min_positive_ratio: float, present: Tensor | None = None) -> Tensor:
    """Return whether a query's share of positive sequences reaches `min_positive_ratio`, (Q,) bool.

    The bound itself is enough: 2 of 10 reach 0.2.
    """
    present = everything(positive) if present is None else present
    share = (positive & present).sum(-1).double() / present.sum(-1)
    return share >= min_positive_ratio - 1e-12


# The GRPO loss of pointer sequences (arXiv 2402.03300): clipped ratio per step, k3 KL to a reference.
def grpo_loss(
    logps: Tensor,
    old_logps: Tensor,
    reference_logps: Tensor,
    advantages: Tensor,
    *,
    clip: float,
    beta: float,
    present: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss (a scalar with gradient) and detached diagnostics: means over steps, sequences, queries.

    Every query counts alike, however many sequences it has.

    Args:
        logps: log-probability of each choice under the policy, (Q, N, S), nats.
        old_logps: the same before this epoch's updates, without gradient.
        reference_logps: the same under the RCE policy, without gradient.
        advantages: one per sequence, (Q, N).
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        beta: weight of the KL.
        present: as above.
    """
    present = everything(advantages) if present is None else present
    rows = logps.flatten(0, 1)  # a step of a sequence is what a token is elsewhere
    mask = present.flatten()[:, None].expand_as(rows).to(rows.dtype)
    ratio = (rows - old_logps.flatten(0, 1)).exp()
    expanded = advantages.flatten()[:, None].expand_as(rows)
    losses, diagnostics = clip_surrogate(ratio, expanded, mask, low=clip, high=clip)

    def mean(values: Tensor) -> Tensor:
        return mean_present(values.view_as(logps).mean(-1), present).mean()

    policy, kl = mean(losses), mean(k3(rows, reference_logps.flatten(0, 1)))
    clipped = diagnostics["policy/clip_fraction"].value()
    assert clipped is not None  # every query has a sequence
    return policy + beta * kl, {"policy_loss": policy.detach(), "kl": kl.detach(), "clip_fraction": clipped}
