"""Stages of trainers: the runner's stage with micro-batches and checkpoints, which need torch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ablation.runner import stage
from ablation.runner.stage import Diverged

if TYPE_CHECKING:
    import torch

    from trainers.running.checkpoint import Checkpoint
    from trainers.running.micro_batch import MicroBatch

__all__ = ["Diverged", "Stage"]


class Stage(stage.Stage):
    """One stage of a trainer, with the fields of `ablation.runner.stage.Stage`."""

    def micro_batch(self, size: int | None) -> MicroBatch:
        """Return a `MicroBatch`, which runs a model on `size` rows at once (None: all), or on fewer if memory runs out.

        A halving is not a failure; it is recorded in the log and in the metrics `memory/*`, and shown as a note.
        """
        from trainers.running.micro_batch import MicroBatch

        def note(smaller: int) -> None:
            self.halvings += 1
            self.log.warning(
                "out of memory; the size of micro-batches is now %d, and the effective batch size does not change",
                smaller,
            )
            last = self.metrics.rows[-1][0] if self.metrics.rows else 0
            self.log_metrics(last, {"memory/halvings": self.halvings, "memory/micro_batch": smaller})

        return MicroBatch(size, note, self.ranks)

    def save_checkpoint(self, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Replace the stage's checkpoint atomically; the checkpoint also contains the metrics logged so far.

        state: JSON values; tuples and keys that are not strings raise ValueError. Save random states as tensors.
        """
        from trainers.running import checkpoint

        rows, folder = [list(row) for row in self.metrics.rows], self.ranks.same(self.out) / "checkpoint"
        checkpoint.save(folder, step, tensors, {"metrics": rows, "user": state}, self.ranks)

    def load_checkpoint(self) -> Checkpoint | None:
        """Restore the metrics of the last checkpoint and return the checkpoint; None if there is no undamaged one.

        Call it before the first `log_metrics`.
        """
        from trainers.running import checkpoint

        saved = checkpoint.load(self.ranks.same(self.out) / "checkpoint", self.ranks)
        if saved is None:
            return None
        self.metrics.restore((int(step), name, float(value)) for step, name, value in saved.state["metrics"])
        for step, name, value in self.metrics.rows:
            self.monitor.observe(step, {name: value})
        self.log.info("resumed after step %d", saved.step)
        return saved._replace(state=saved.state["user"])


def run_seed(seed: int | None) -> int:
    """Return a seed in [0, 2**31) derived from `Stage.seed`, equal in all processes and on all machines.

    It is 0 for a stage that is not seeded (None), so that all runs share one draw.
    """
    return 0 if seed is None else int.from_bytes(hashlib.sha256(f"0 {seed}".encode()).digest()[:8], "big") % 2**31
