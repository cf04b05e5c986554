"""Innovation 2.3, AMIC (arithmetic mean importance correction): one ratio per response, s = 1/L sum_t w_t.

GSPO takes the geometric mean instead, which is never larger (inequality of the arithmetic and geometric means).
"""

from torch import Tensor

from trainers.objectives.aggregation import sequence_mean
from trainers.objectives.sequence_ratio import arithmetic_ratio


def transform(ratio: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the sequence ratios (B, T) of token ratios (B, T), and their variance over the responses."""
    sequence = sequence_mean(ratio, mask).detach()
    diagnostics = {
        "amic/sequence_weights_variance": sequence.var(correction=0),
        "amic/avg_sequence_length": mask.to(ratio.dtype).sum(-1).mean(),
    }
    return arithmetic_ratio(ratio, mask), diagnostics
