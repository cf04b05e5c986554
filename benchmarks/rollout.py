"""Batched group sampling against one response at a time and against transformers' generate, in one process.

    python benchmarks/rollout.py [--prompts 8] [--group 8] [--repeats 7]

All three sample from the demo's policy (random weights, so that no response ends early: every one has the full length)
and then from a policy whose responses end at different lengths. Prints medians of CPU seconds, which a busy machine
moves less than wall time, and their ratios; the order of the three alternates from repeat to repeat.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes `trainers` importable

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.config import PolicyConfig
from trainers.policy.models import build_policy
from trainers.policy.rollout import sample
from trainers.policy.text import pad, pad_token, prompt_tokens, word_tokenizer
from trainers.tasks.knights_knaves import WORDS, create


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--prompts", type=int, default=8)
    arguments.add_argument("--group", type=int, default=8)
    arguments.add_argument("--repeats", type=int, default=7)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    config = PolicyConfig()
    tokenizer = word_tokenizer(WORDS)
    model = build_policy(config.scratch, tokenizer, seed=0).eval()
    sizes = {"warm": 1, "train": options.prompts, "dev": 1, "test": 1}
    problems = create(config.task).splits(sizes, 0)["train"]
    ids, mask = pad([prompt_tokens(tokenizer, p.prompt, None) for p in problems], pad_token(tokenizer), left=True)
    width = config.sampling.max_new_tokens
    for name, bias in (("full length", -1e4), ("ended at different lengths", 3.0)):
        _bias_end(model, tokenizer.eos_token_id, bias)
        seconds, tokens = compare(model, ids, mask, options=options, width=width, tokenizer=tokenizer)
        print(f"{name}: {options.prompts} prompts x {options.group} responses, up to {width} tokens, 1 thread")
        for way, values in seconds.items():
            rate = statistics.mean(tokens[way]) / statistics.median(values)
            print(f"  {way:<26} {statistics.median(values):8.3f} s   {rate:9.0f} tokens/s")
        ours = seconds["batched groups"]
        for way in ("one response at a time", "transformers generate"):
            ratio = statistics.median(seconds[way]) / statistics.median(ours)
            print(f"  batched groups are {ratio:.1f} x as fast as {way}")


def compare(
    model: PreTrainedModel,
    ids: torch.Tensor,
    mask: torch.Tensor,
    *,
    options: argparse.Namespace,
    width: int,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Return CPU seconds and sampled tokens of every repeat, by way."""
    eos, padding = tokenizer.eos_token_id, pad_token(tokenizer)
    common = {"max_new_tokens": width, "do_sample": True, "top_k": 0, "pad_token_id": padding, "eos_token_id": eos}

    def batched() -> int:
        numbers = torch.rand(len(ids) * options.group, width, dtype=torch.float64)
        found = sample(
            model, ids, mask, group_size=options.group, max_new_tokens=width, eos=eos, pad=padding, uniforms=numbers
        )
        return int(found.mask.sum())

    def one_at_a_time() -> int:  # the loop of the GSPO notes
        total = 0
        for row, keep in zip(ids, mask, strict=True):
            prompt = row[keep.bool()][None]
            for _ in range(options.group):
                total += (
                    model.generate(prompt, attention_mask=torch.ones_like(prompt), **common).shape[1] - prompt.shape[1]
                )
        return total

    def generate() -> int:
        found = model.generate(ids, attention_mask=mask, num_return_sequences=options.group, **common)[
            :, ids.shape[1] :
        ]
        ended = (found == eos).int()
        return int(((ended.cumsum(1) - ended) == 0).sum())

    ways: dict[str, Callable[[], int]] = {
        "batched groups": batched,
        "transformers generate": generate,
        "one response at a time": one_at_a_time,
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    tokens: dict[str, list[int]] = {way: [] for way in ways}
    for repeat in range(-1, options.repeats):
        for way in list(ways)[:: 1 if repeat % 2 else -1]:
            torch.manual_seed(repeat + 1)
            started = time.process_time()
            with torch.no_grad():
                count = ways[way]()
            if repeat >= 0:  # the first one warms up
                seconds[way].append(time.process_time() - started)
                tokens[way].append(count)
    return seconds, tokens


def _bias_end(model: PreTrainedModel, eos: int, bias: float) -> None:
    """Add `bias` to the logit of the end-of-sequence token, in place of what was added before."""
    head = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features)
    with torch.no_grad():
        head.weight.copy_(model.get_input_embeddings().weight)
        head.bias.zero_()
        head.bias[eos] = bias
    model.lm_head = head


if __name__ == "__main__":
    main()
