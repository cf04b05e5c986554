"""One rank that samples with a copy of the weights, as several do in bfloat16."""

from contextlib import contextmanager

from ablation.runner.ranks import Ranks
from trainers.parallel.weights import rollout_copy


class Copying(Ranks):
    """Makes the copy again each time."""

    @contextmanager
    def full_weights(self, model, *, autocast):
        assert autocast
        yield rollout_copy(model, self.full_tensor)


class Frozen(Ranks):
    """Its copy is made once: nobody refreshes it."""

    copied = None

    @contextmanager
    def full_weights(self, model, *, autocast):
        assert autocast
        self.copied = self.copied or rollout_copy(model, self.full_tensor)
        yield self.copied
