"""The arithmetic sequence ratio `s = 1/L * sum_t w_t`, in a form in which each token keeps its own gradient."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean, Variance, sequence_mean


def arithmetic_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """Return `sg[s] + w_t - sg[w_t]` (N, T) for token ratios w (N, T); the value is s at every token.

    Averaged over the response its gradient is that of s, 1/L sum_t grad w_t. A weight c_t of a token (2.2, 2.5) scales
    the gradient of that token, while with s itself only the mean of the weights, which is 1, would have an effect.
    """
    return sequence_mean(ratio, mask).detach()[:, None] + ratio - ratio.detach()


def to_arithmetic_ratio(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the arithmetic sequence ratio (N, T) without diagnostics, as PTRW uses it."""
    return arithmetic_ratio(ratio, mask), {}


def amic(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the arithmetic sequence ratios (N, T) of token ratios (N, T), with their variance over the responses.

    Innovation 2.3, arithmetic mean importance correction. GSPO's geometric mean is never larger.
    """
    diagnostics: Diagnostics = {
        "amic/sequence_weights_variance": Variance.of(sequence_mean(ratio, mask)),
        "amic/avg_sequence_length": Mean.of(mask.sum(-1)),
    }
    return arithmetic_ratio(ratio, mask), diagnostics
