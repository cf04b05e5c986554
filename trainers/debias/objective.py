"""The training objective of a variant, put together from its parts.

    combined = (1 - weight) * edit_loss + weight * grpo_loss
    loss     = rcs_weight * combined + loc_coef * retention + mo_fairness_weight * fairness

The curriculum does not weigh retention, which BiasEdit takes back on its own. Weighing all terms alike would do
nothing: Adam and a clipped gradient cancel a factor.

What a variant does not use is neither imported nor computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.debias.head import token_kl
from trainers.debias.scores import SentenceScores, language_modelling, stereotype_preferred
from trainers.objectives.debias import edit_loss, retention_loss


@dataclass(frozen=True)
class Reference:
    """The unedited model on the same items.

    unrelated_p: scores of the unrelated sentences [B]. mean, offset: where the objective has a KL, the next-token
    distributions at the predicting positions of anti and stereo (see `head.reference`).
    """

    unrelated_p: Tensor
    mean: Tensor | None = None
    offset: Tensor | None = None


class Objective:
    """The loss of one micro-batch; stateless but for the phase of the curriculum."""

    def __init__(self, config: Any, parts: Mapping[str, Any]) -> None:
        """Take what `trainers.debias.parts` returns of the configuration."""
        self.config = config
        self.reward, self.fairness = parts.get("reward"), parts.get("fairness")
        self.parts = parts
        if "rcs_weight" in parts and self.reward is None:
            raise ValueError("rcs.mode adaptive needs a reward: set grpo.weight above 0, or rcs.mode to off")

    @property
    def needs_kl(self) -> bool:
        """Whether the reference distributions are used."""
        return self.reward is not None

    def __call__(
        self, scores: SentenceScores, reference: Reference, epoch_fraction: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Loss of the edited model on B items, and the figures to log (names without `train/`).

        scores: of 3 B sentences, item by item: anti, stereo, unrelated. reference: the unedited model on the same
        items. epoch_fraction: epoch index / n_epochs, for the curriculum's schedule.
        """
        config = self.config
        anti_p, stereo_p, _ = scores.p.view(-1, 3).unbind(1)
        anti_logp, stereo_logp, unrelated_logp = scores.logp.view(-1, 3).unbind(1)
        edit = edit_loss(anti_p, anti_logp, stereo_p, stereo_logp)
        retention = retention_loss(unrelated_logp, reference.unrelated_p)
        by_probability = config.ss == "probability"
        compared = (stereo_p, anti_p) if by_probability else (stereo_logp, anti_logp)
        ss = float(stereotype_preferred(*compared).mean())
        figures = {"edit_loss": edit.item(), "loc_loss": retention.item(), "ss": ss, "ss_distance": abs(ss - 0.5)}
        figures["lms"] = float(language_modelling(anti_logp, stereo_logp, unrelated_logp).mean())
        combined = edit
        if self.reward is not None:
            reward = self.reward(anti_logp, stereo_logp)
            kl = self._kl(scores, reference)
            grpo = self.parts["grpo_loss"](reward, kl, beta=config.grpo.beta, gamma=config.grpo.gamma)
            combined = self.parts["combine"](edit, grpo, weight=config.grpo.weight)
            figures |= {"reward": reward.item(), "kl": kl.item(), "grpo_loss": grpo.item()}
        if "rcs_weight" in self.parts:
            alpha = self.parts["rcs_alpha"](config.rcs, abs(ss - 0.5), epoch_fraction)
            rcs_weight = self.parts["rcs_weight"](figures["reward"], alpha)
            combined = rcs_weight * combined
            figures |= {"rcs_alpha": alpha, "rcs_weight": rcs_weight}
        loss = combined + config.loc_coef * retention
        if self.fairness is not None:
            gap = self.fairness(anti_logp, stereo_logp)
            loss = loss + config.mo_fairness_weight * gap
            figures["fairness"] = gap.item()
        figures["loss"] = loss.item()
        return loss, figures

    def _kl(self, scores: SentenceScores, reference: Reference) -> Tensor:
        kind = scores.sentence % 3
        pair = kind < 2
        assert reference.mean is not None  # needs_kl
        assert reference.offset is not None
        kl = token_kl(scores.hidden[pair], scores.partition[pair], reference.mean, reference.offset)
        return self.parts["mean_token_kl"](kl[kind[pair] == 0], kl[kind[pair] == 1])
