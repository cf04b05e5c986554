"""What so many seeds leave room for, by hand."""

import pytest

from ablation.judge.significance import seeds_for, share_otherwise


@pytest.mark.parametrize(("seeds", "share"), [(1, 0.95), (2, 0.7764), (3, 0.6316), (5, 0.4507), (10, 0.2589)])
def test_the_share_of_seeds_that_may_behave_otherwise(seeds, share):
    assert share_otherwise(seeds, 0.05) == pytest.approx(share, abs=1e-4)
    assert (1 - share_otherwise(seeds, 0.05)) ** seeds == pytest.approx(0.05)


@pytest.mark.parametrize(("rare", "seeds"), [(0.5, 5), (0.25, 11), (0.1, 29), (0.95, 1)])
def test_seeds_that_leave_a_smaller_share(rare, seeds):
    assert seeds_for(rare, 0.05) == seeds
    assert share_otherwise(seeds, 0.05) <= rare + 1e-12
    assert seeds == 1 or share_otherwise(seeds - 1, 0.05) > rare
