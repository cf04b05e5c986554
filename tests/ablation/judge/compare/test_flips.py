"""Items that changed most between two arms."""

from types import SimpleNamespace

import numpy as np

from ablation.config.study_schema import Target
from ablation.judge.compare.comparison import most_changed
from ablation.readers.sheet import ItemText


def arm(*seeds):
    sheets = [
        SimpleNamespace(values=np.array(values), items=["a", "b"], texts=lambda items: dict.fromkeys(items, ItemText()))
        for values in seeds
    ]
    return SimpleNamespace(runs={seed: {"all": sheet} for seed, sheet in enumerate(sheets)})


def test_an_item_is_quoted_in_the_seed_that_moved_it_as_the_mean_did():
    """Towards a target, the mean of a single seed may lie on the other side of it than that of all."""
    analysis = SimpleNamespace(subsets=["all"], direction=Target(target=0.5))
    parent = arm([0.0, 0.0], [0.9, 0.9])
    child = arm([0.4, 0.0], [0.8, 0.9])  # a: +0.4 below the target, -0.1 above it
    (a,) = most_changed(parent, child, analysis, 3).best
    assert (a.item, a.seed) == ("a", 0)
    parent, child = arm([0.0, 0.0], [0.9, 0.9]), arm([0.1, 0.0], [0.4, 0.9])  # +0.1 and -0.5: got worse
    (a,) = most_changed(parent, child, analysis, 3).worst
    assert (a.item, a.seed) == ("a", 1)
