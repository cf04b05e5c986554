"""Which epoch was the best, and when to stop waiting for a better one."""

from dataclasses import asdict, dataclass


@dataclass
class EarlyStopping:
    """Watches one figure, lower being better. Without a key every epoch counts as the best, and nothing stops early."""

    key: str | None
    patience: int | None
    best: float | None = None
    best_epoch: int = -1
    epoch: int = -1

    def update(self, epoch: int, figures: dict[str, float]) -> bool:
        """Take in an epoch's development figures; true if the hypernetwork is now the one to keep."""
        self.epoch = epoch
        if self.key is not None:
            value = figures[self.key]
            if self.best is not None and value >= self.best:
                return False
            self.best = value
        self.best_epoch = epoch
        return True

    @property
    def should_stop(self) -> bool:
        """Whether `patience` epochs have passed without improvement."""
        return self.key is not None and self.patience is not None and self.epoch - self.best_epoch >= self.patience

    def state(self) -> dict[str, object]:
        """All fields, as JSON values."""
        return asdict(self)
