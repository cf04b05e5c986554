"""Which configurations are refused, and which modules a variant uses."""

import re

import pytest

from tests.make_stage import part_names
from trainers.gad.config import GadConfig
from trainers.policy.config import PolicyConfig


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"advantage": {"kind": "gae"}}, "group_size 1"),
        ({"rollout": {"responses": 10, "group_size": 4}}, "not a multiple"),
        ({"ema_smoothing": {}, "ratio": "gspo"}, "set ratio to token"),
        ({"weight_on": "ratio"}, "no effect"),
        ({"reward": {"rule": 1.0, "model": 1.0}}, "reward_model"),
        ({"reward": {"rule": 0.0}}, "nothing would be rewarded"),
        ({"overlong_penalty": {"share": 1.0}}, "less than 1"),
        ({"task": {"name": "knights_knaves", "form": "textual"}}, "pretrained"),
        ({"task": {"name": "question_answer"}}, "data_source"),
        ({"evaluate": {"checkpoints": 3}, "steps": 2}, "evaluate.checkpoints 3 exceeds steps 2"),
        ({"warm_start": {"until": {"problems": 41}}, "data": {"train": 40}}, "41 exceeds data.train 40"),
        ({"warm_start": {"steps": 80, "until": {"every": 81}}}, "81 exceeds warm_start.steps 80"),
        ({"warm_start": {"memory": {"lora": {}}}}, "warm_start.memory.lora needs a pretrained model"),
        ({"memory": {"lora": {"dropout": 0.1}}}, "memory.lora.dropout"),
    ],
)
def test_configurations_that_cannot_work_are_refused(values, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        PolicyConfig(**values)


@pytest.mark.parametrize(
    ("values", "stage", "more"),
    [
        (
            {"ema_smoothing": {}, "temporal_decay": {}},
            "reinforce",
            {"ema_smoothing", "temporal_decay"},
        ),
        ({"surrogate": {"kind": "ptrw"}}, "reinforce", {"sequence_ratio"}),
        ({"rollout": {"engine": "vllm"}}, "reinforce", {"engine"}),
        ({"rollout": {"engine": "vllm"}}, "evaluate", set()),
        ({"memory": {"lora": {}}}, "warm_start", set()),
        ({"memory": {"lora": {}}}, "reinforce", {"adapters"}),
        ({"memory": {"lora": {}}}, "evaluate", set()),
    ],
)
def test_a_variant_uses_exactly_the_parts_of_its_objective(values, stage, more):
    plain, found = part_names(PolicyConfig(), stage), part_names(PolicyConfig(**values), stage)
    assert found.keys() - plain.keys() == more
    changed = {slot for slot, name in plain.items() if found.get(slot) != name}
    assert changed == ({"surrogate"} if "surrogate" in values else set())


def test_packages_are_needed_by_the_stages_that_use_them():
    lora, vllm = PolicyConfig(memory={"lora": {}}), PolicyConfig(rollout={"engine": "vllm"})
    assert lora.needed_packages("reinforce")["peft"][0] == "memory.lora"
    for config, stage in ((vllm, "reinforce"), (GadConfig(rollout={"engine": "vllm"}), "warmup")):
        assert list(config.needed_packages(stage)) == ["vllm"]
    for config, stage in ((lora, "warm_start"), (vllm, "evaluate"), (PolicyConfig(), "reinforce")):
        assert not config.needed_packages(stage)
