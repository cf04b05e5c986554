"""Importance ratios, and what is done to them before the loss."""

from torch import Tensor

from trainers.objectives.aggregation import decayed_sum, sequence_mean
from trainers.objectives.diagnostics import Diagnostics, Mean, Reduction, Variance

# Token importance ratios: w_t = pi(y_t | x, y_<t) / pi_old(y_t | x, y_<t) (PPO, arXiv 1707.06347).
TOKEN_LOG_BOUND = 20.0  # verl bounds the log-ratio so that one token can neither overflow nor vanish


def token_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return exp(logps - old_logps) for logps, old_logps, mask (B, T): (B, T)."""
    return (logps - old_logps).clamp(-TOKEN_LOG_BOUND, TOKEN_LOG_BOUND).exp()


# The sequence ratio of GSPO (arXiv 2507.18071, equation 7): the geometric mean of a response's token ratios.
SEQUENCE_LOG_BOUND = 10.0  # of the sequence's log ratio, from above, as in verl: a ratio of 22,026 at most


def gspo_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return s = exp(1/L sum_t (logps - old_logps)), the same at every token of the response: (B, T)."""
    return sequence_mean(logps - old_logps, mask).clamp(max=SEQUENCE_LOG_BOUND).exp()[:, None].expand_as(logps)


# The ratio of GSPO-token (arXiv 2507.18071, equation 14): the sequence's value, the token's own gradient.
#
# s_t = sg[s] * pi_t / sg[pi_t]. With one advantage per response its loss and its gradient are those of GSPO (section
# 4.3 there); they part when the advantage differs from token to token. It is also verl's form of GSPO.
def gspo_token_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return exp(sg[1/L sum_t (logps - old_logps)] + logps - sg[logps]): (B, T)."""
    sequence = sequence_mean(logps - old_logps, mask).detach()[:, None]
    return (sequence + logps - logps.detach()).clamp(max=SEQUENCE_LOG_BOUND).exp()


# The sequence ratio without length normalisation, as in the GSPO notes: the product of a response's token ratios.
#
# s = pi(y | x) / pi_old(y | x) = exp(sum_t (logps - old_logps)): the importance weight of the response itself. GSPO
# (arXiv 2507.18071, equation 7) takes its L-th root, because the product's spread grows with the length and leaves
# every clip range.
def product_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return s for logps, old_logps, mask (B, T), the same at every token of the response: (B, T).

    The log-ratio is bounded as that of a token is, so that a long response can neither overflow nor vanish.
    """
    log_ratio = ((logps - old_logps) * mask).sum(-1, keepdim=True)
    return log_ratio.clamp(-TOKEN_LOG_BOUND, TOKEN_LOG_BOUND).exp().expand_as(logps)


# The arithmetic sequence ratio s = 1/L sum_t w_t, in a form that leaves each token its own gradient.
def arithmetic_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """Return sg[s] + w_t - sg[w_t] for token ratios w (B, T): the value s at every token, (B, T).

    Averaged over the response its gradient is that of s itself, 1/L sum_t grad w_t. But a weight c_t at token t (token
    weights 2.2, 2.5) scales the gradient of that token, where a plain s would only see the weights' mean, which is 1.
    """
    return sequence_mean(ratio, mask).detach()[:, None] + ratio - ratio.detach()


def to_arithmetic_ratio(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the arithmetic sequence ratio without diagnostics (PTRW's own choice of ratio)."""
    return arithmetic_ratio(ratio, mask), {}


# Innovation 2.3, AMIC (arithmetic mean importance correction): one ratio per response, s = 1/L sum_t w_t.
#
# GSPO takes the geometric mean instead, which is never larger (inequality of the arithmetic and geometric means).
def amic(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the sequence ratios (B, T) of token ratios (B, T), and their variance over the responses."""
    diagnostics: Diagnostics = {
        "amic/sequence_weights_variance": Variance.of(sequence_mean(ratio, mask)),
        "amic/avg_sequence_length": Mean.of(mask.sum(-1)),
    }
    return arithmetic_ratio(ratio, mask), diagnostics


# Innovation 2.1: importance ratios smoothed along the response by an exponential moving average.
def ema_smoothing(ratio: Tensor, mask: Tensor, *, beta: float) -> tuple[Tensor, Diagnostics]:
    """Return w'_1 = w_1, w'_t = beta w_t + (1 - beta) w'_{t-1} of token ratios (B, T); beta = 1 changes nothing.

    beta weighs the present token: independent ratios keep beta / (2 - beta) of their variance far from the start, 82%
    at 0.9. Diagnostics: population variances over all tokens, and 1 - var(w') / var(w), undefined where all ratios are
    equal (the first minibatch after a rollout: there is no variance to reduce).
    """
    first = ratio[:, :1]  # apart, so that equal ratios stay exactly as they are
    smoothed = first + decayed_sum(beta * (ratio - first), 1 - beta)
    diagnostics: Diagnostics = {
        "ema/variance_reduction_ratio": Reduction.of(ratio, smoothed, mask),
        "ema/raw_weights_variance": Variance.of(ratio, mask),
        "ema/smoothed_weights_variance": Variance.of(smoothed, mask),
    }
    return smoothed, diagnostics
