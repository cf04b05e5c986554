"""Innovation 2.3, AMIC (arithmetic mean importance correction): one ratio per response, s = 1/L sum_t w_t.

GSPO takes the geometric mean instead, which is never larger (inequality of the arithmetic and geometric means).
"""

from torch import Tensor

from trainers.objectives.diagnostics.statistics import Diagnostics, Mean, Variance
from trainers.objectives.losses.aggregation import sequence_mean
from trainers.objectives.ratios.sequence_ratio import arithmetic_ratio


def transform(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the sequence ratios (B, T) of token ratios (B, T), and their variance over the responses."""
    diagnostics: Diagnostics = {
        "amic/sequence_weights_variance": Variance.of(sequence_mean(ratio, mask)),
        "amic/avg_sequence_length": Mean.of(mask.sum(-1)),
    }
    return arithmetic_ratio(ratio, mask), diagnostics
