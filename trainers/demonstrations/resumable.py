"""Passes of a frozen model over many rows, in batches, which go on after a kill with the same bits."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainers.stage import Stage

SAVE_AFTER = 60.0  # seconds between checkpoints: what a kill may cost
Found = tuple[Tensor, Sequence[str]]  # (B, C) numbers of some rows, and for each row a text, or none for all


class Resumable:
    """Runs the passes of one stage; a checkpoint holds the rows that are done, by the name of the pass.

    Batches begin at multiples of the batch size, also after a kill: so padding, and with it every bit, is the same.
    Each rank has a whole model; they take turns with the batches.
    """

    def __init__(self, stage: Stage, batch_size: int) -> None:
        self.stage, self.batch_size = stage, batch_size
        self.memory = stage.micro_batch(batch_size)
        found = stage.load_checkpoint()
        self.done: dict[str, Tensor] = dict(found.tensors) if found is not None else {}
        self.texts: list[str] = found.state["texts"] if found is not None else []
        self._places = {text: place for place, text in enumerate(self.texts)}
        self.saved = time.monotonic()

    def rows(self, name: str, count: int, work: Callable[[Tensor], Found]) -> Tensor:
        """Return what `work` returns for the rows 0 to count - 1, (count, C) float32; texts are a last column.

        That column has numbers, by which `self.texts` gives the texts back, also after a kill. There are far fewer
        answers than float32 has whole numbers, 16 million.

        Args:
            name: of the pass, unique within the stage.
            count: number of rows.
            work: called with row numbers (B,), returns (B, C) on the CPU, and texts. Where memory does not suffice it
                is called again with fewer of them.
        """
        ranks = self.stage.ranks
        parts = [self.done[name]] if name in self.done else []
        begin = len(parts[0]) if parts else 0
        while begin < count:
            numbers = torch.arange(begin, min(begin + self.batch_size * ranks.size, count))
            mine = numbers[ranks.rank * self.batch_size :][: self.batch_size]  # none in the last round of some ranks
            for found in ranks.gather(self._work(mine, work)):
                parts += [self._table(*part) for part in found]
            begin += len(numbers)
            self.stage.progress(begin, count, f"rows ({name})")
            if ranks.same(time.monotonic() - self.saved) >= SAVE_AFTER:
                self.done[name] = torch.cat(parts)
                self._save()
                parts = [self.done[name]]
        self.done[name] = torch.cat(parts)
        return self.done[name]

    def _work(self, numbers: Tensor, work: Callable[[Tensor], Found]) -> list[Found]:
        """Return what `work` returns for some rows, all at once or in parts that memory suffices for."""
        if not len(numbers):
            return []
        return self.memory.retry(len(numbers), lambda size: [work(part) for part in numbers.split(size)])

    def _table(self, values: Tensor, texts: Sequence[str]) -> Tensor:
        """Return values (B, C) with the texts' numbers, if there are texts, as a last column."""
        if not texts:
            return values
        for text in texts:
            if text not in self._places:
                self._places[text] = len(self.texts)
                self.texts.append(text)
        return torch.cat([values, torch.tensor([[float(self._places[text])] for text in texts])], 1)

    def _save(self) -> None:
        """Keep all finished rows."""
        rows = sum(len(table) for table in self.done.values())
        self.stage.save_checkpoint(rows, self.done, {"texts": self.texts})
        self.saved = time.monotonic()
