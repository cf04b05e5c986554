"""The arithmetic sequence ratio s = 1/L sum_t w_t, in a form that leaves each token its own gradient."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean, Variance, sequence_mean


def arithmetic_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """Return sg[s] + w_t - sg[w_t] for token ratios w (N, T): the value s at every token, (N, T).

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
    """Return the sequence ratios (N, T) of token ratios (N, T), and their variance over the responses."""
    diagnostics: Diagnostics = {
        "amic/sequence_weights_variance": Variance.of(sequence_mean(ratio, mask)),
        "amic/avg_sequence_length": Mean.of(mask.sum(-1)),
    }
    return arithmetic_ratio(ratio, mask), diagnostics
