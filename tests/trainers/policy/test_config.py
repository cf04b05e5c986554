"""Which configurations are refused, and which modules a variant uses."""

import pytest

from tests.make_stage import part_names
from trainers.policy.config import PolicyConfig


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"advantage": {"kind": "gae"}}, "group_size 1"),
        ({"rollout": {"responses": 10, "group_size": 4}}, "not a multiple"),
        ({"ema_smoothing": {}, "ratio": "gspo"}, "ratio token"),
        ({"weight_on": "ratio"}, "no effect"),
        ({"reward": {"rule": 1.0, "model": 1.0}}, "reward_model"),
        ({"reward": {"rule": 0.0}}, "nothing would be rewarded"),
        ({"overlong_penalty": {"share": 1.0}}, "less than 1"),
        ({"task": {"name": "knights_knaves", "form": "textual"}}, "pretrained"),
        ({"task": {"name": "question_answer"}}, "data_source"),
        ({"evaluate": {"checkpoints": 3}, "steps": 2}, "evaluate.checkpoints is 3, but steps is 2"),
        ({"warm_start": {"until": {"problems": 41}}, "data": {"train": 40}}, "41 is more than data.train, 40"),
        ({"warm_start": {"steps": 80, "until": {"every": 81}}}, "more than the 80 steps"),
        ({"warm_start": {"memory": {"lora": {}}}}, "warm_start.memory.lora needs a pretrained `model`"),
        ({"memory": {"lora": {"rank": 0}}}, "memory.lora.rank"),
        ({"memory": {"lora": {"alpha": 0.0}}}, "memory.lora.alpha"),
        ({"memory": {"lora": {"targets": []}}}, "memory.lora.targets"),
        ({"memory": {"lora": {"dropout": 0.1}}}, "memory.lora.dropout"),
    ],
)
def test_configurations_that_cannot_work_are_refused(values, problem):
    with pytest.raises(ValueError, match=problem):
        PolicyConfig(**values)


def test_a_variant_uses_exactly_the_parts_of_its_objective():
    grpo, conservative = PolicyConfig(), PolicyConfig(ema_smoothing={}, temporal_decay={})
    of_grpo, of_conservative = part_names(grpo, "reinforce"), part_names(conservative, "reinforce")
    assert of_conservative.items() >= of_grpo.items()
    assert of_conservative.keys() - of_grpo.keys() == {"formulas.ema_smoothing", "formulas.temporal_decay"}
    of_ptrw = part_names(PolicyConfig(surrogate={"kind": "ptrw"}), "reinforce")
    assert of_ptrw.keys() - of_grpo.keys() == {"formulas.sequence_ratio"}
    assert of_ptrw["formulas.surrogate"] != of_grpo["formulas.surrogate"]
