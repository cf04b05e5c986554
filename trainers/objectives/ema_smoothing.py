"""Innovation 2.1: importance ratios smoothed along the response by an exponential moving average."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, Variance, VarianceReduction, decayed_sum


def ema_smoothing(ratio: Tensor, mask: Tensor, *, beta: float) -> tuple[Tensor, Diagnostics]:
    """Return `w'_1 = w_1`, `w'_t = beta * w_t + (1 - beta) * w'_{t-1}` for token ratios w (N, T).

    With beta = 1 the ratios do not change.

    beta weighs the current token: far from the start, independent ratios keep beta / (2 - beta) of their variance, 82%
    at 0.9. Diagnostics: population variances over all tokens, and 1 - var(w') / var(w), which is undefined if all
    ratios are equal, as in the first minibatch after a rollout.
    """
    first = ratio[:, :1]  # subtracted, so that equal ratios do not change by rounding
    smoothed = first + decayed_sum(beta * (ratio - first), 1 - beta)
    raw, after = Variance.of(ratio, mask), Variance.of(smoothed, mask)
    diagnostics: Diagnostics = {
        "ema/variance_reduction_ratio": VarianceReduction(raw, after),
        "ema/raw_weights_variance": raw,
        "ema/smoothed_weights_variance": after,
    }
    return smoothed, diagnostics
