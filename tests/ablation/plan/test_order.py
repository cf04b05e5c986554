"""Stages run seed by seed."""

from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from ablation.plan.order import priorities


def plan_of(toy, **overrides):
    return build_plan(load_settings({"seeds": 3, **overrides}, configs=toy.configs), root=toy.root)


def test_seeds_come_one_after_the_other_and_long_lines_first(toy):
    plan = plan_of(toy)
    number = priorities(plan)
    order = sorted(plan.stages.values(), key=lambda stage: -number[stage.id, stage.key])
    assert [stage.seed for stage in order if stage.seed is not None] == sorted([0, 1, 2] * (len(order) // 3))
    assert len(set(number.values())) == len(plan.stages)
    for address, above in plan.upstream.items():
        assert all(number[each] > number[address] for each in above)
    kinds = [stage.stage for stage in order if stage.seed == 1]
    assert kinds == sorted(kinds, key=["train", "evaluate"].index)  # nothing waits for an evaluation
