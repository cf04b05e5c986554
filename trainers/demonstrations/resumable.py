"""Passes of a frozen model over many rows, in batches, which go on after a kill with the same bits."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainers.stage import Stage

SAVE_AFTER = 60.0  # seconds between checkpoints: what a kill may cost


class Resumable:
    """Runs the passes of one stage; a checkpoint holds the rows that are done, by the name of the pass.

    Batches begin at multiples of the batch size, also after a kill: so padding, and with it every bit, is the same.
    """

    def __init__(self, stage: Stage, batch_size: int) -> None:
        self.stage, self.batch_size = stage, batch_size
        self.memory = stage.micro_batch(batch_size)
        found = stage.load_checkpoint()
        self.done: dict[str, Tensor] = dict(found.tensors) if found is not None else {}
        self.texts: list[str] = found.state["texts"] if found is not None else []
        self._places = {text: place for place, text in enumerate(self.texts)}
        self.saved = time.monotonic()

    def rows(self, name: str, count: int, work: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what `work` returns for the rows 0 to count - 1, (count, C) float32.

        Args:
            name: of the pass, unique within the stage.
            count: number of rows.
            work: called with row numbers (B,), returns (B, C) on the CPU. Where memory does not suffice it is called
                again with fewer of them.
        """
        parts = [self.done[name]] if name in self.done else []
        begin = len(parts[0]) if parts else 0
        while begin < count:
            numbers = torch.arange(begin, min(begin + self.batch_size, count))
            parts.append(torch.cat(self.memory.run(numbers, work)))
            begin += len(numbers)
            self.stage.progress(begin, count, f"rows ({name})")
            if time.monotonic() - self.saved >= SAVE_AFTER:
                self.done[name] = torch.cat(parts)
                self._save()
                parts = [self.done[name]]
        self.done[name] = torch.cat(parts)
        return self.done[name]

    def numbered(self, texts: Sequence[str]) -> Tensor:
        """Return numbers (B,) float32 by which `self.texts` gives these texts back, also after a kill.

        There are far fewer answers than float32 has whole numbers, 16 million.
        """
        for text in texts:
            if text not in self._places:
                self._places[text] = len(self.texts)
                self.texts.append(text)
        return torch.tensor([float(self._places[text]) for text in texts])

    def _save(self) -> None:
        """Keep all finished rows."""
        rows = sum(len(table) for table in self.done.values())
        self.stage.save_checkpoint(rows, self.done, {"texts": self.texts})
        self.saved = time.monotonic()
