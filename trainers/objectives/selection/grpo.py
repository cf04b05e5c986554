"""The GRPO loss of pointer sequences (arXiv 2402.03300): clipped ratio per step, k3 KL to a reference."""

from torch import Tensor

from trainers.objectives.losses.clipped import surrogate
from trainers.objectives.losses.kl import k3
from trainers.objectives.selection.present import everything, mean_present


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
        present: (Q, N) bool, the places that hold a sequence; None: all.
    """
    present = everything(advantages) if present is None else present
    rows = logps.flatten(0, 1)  # a step of a sequence is what a token is elsewhere
    mask = present.flatten()[:, None].expand_as(rows).to(rows.dtype)
    ratio = (rows - old_logps.flatten(0, 1)).exp()
    expanded = advantages.flatten()[:, None].expand_as(rows)
    losses, diagnostics = surrogate(ratio, expanded, mask, low=clip, high=clip)

    def mean(values: Tensor) -> Tensor:
        return mean_present(values.view_as(logps).mean(-1), present).mean()

    policy, kl = mean(losses), mean(k3(rows, reference_logps.flatten(0, 1)))
    clipped = diagnostics["policy/clip_fraction"].value()
    assert clipped is not None  # every query has a sequence
    return policy + beta * kl, {"policy_loss": policy.detach(), "kl": kl.detach(), "clip_fraction": clipped}
