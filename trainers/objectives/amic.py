"""The arithmetic sequence ratio `s = 1/L * sum_t w_t`, in a form in which each token keeps its own gradient."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, Mean, Variance, sequence_mean


def arithmetic_ratio(ratio: Tensor, mask: Tensor) -> Tensor:
    """Return `sg[s] + w_t - sg[w_t]`, (N, T), for token ratios w (N, T) with mean s; sg stops the gradient.

    The value is s at every token, and the mean gradient over a response is the gradient of s. A token's weight
    (innovations 2.2 and 2.5) scales its own gradient, while weights of s itself would have no effect beyond their mean.
    """
    return sequence_mean(ratio, mask).detach()[:, None] + ratio - ratio.detach()


def to_arithmetic_ratio(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the arithmetic sequence ratio (N, T) without diagnostics, as PTRW uses it."""
    return arithmetic_ratio(ratio, mask), {}


def amic(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the arithmetic sequence ratios (N, T) of token ratios (N, T), and diagnostics.

    Innovation 2.3, arithmetic mean importance correction. GSPO's geometric mean is never larger.
    Diagnostics: variance of the ratios over the responses, and mean length of a response in tokens.
    """
    diagnostics: Diagnostics = {
        "amic/sequence_weights_variance": Variance.of(sequence_mean(ratio, mask)),
        "amic/avg_sequence_length": Mean.of(mask.sum(-1)),
    }
    return arithmetic_ratio(ratio, mask), diagnostics
