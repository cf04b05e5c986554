"""Responses by vLLM in one process or several: python ranks.py MODEL OUT, under torchrun's launcher or not."""

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from ablation.runner.ranks import ALONE
from trainers.policy.config import Precision, Vllm
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.vllm_engine import VllmEngine

PROMPTS = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6]]


def main(folder, out):
    device, ranks = torch.device("cpu"), ALONE
    if "RANK" in os.environ:
        from trainers.parallel.group import Group

        ranks = Group.join(device)
    model, tokenizer = ranks.shard(load_policy(folder, device, trainable=True)), load_tokenizer(folder)
    engine = VllmEngine(model, tokenizer, Placement.of(["cpu"], Precision(), ranks), folder, Vllm())
    found = {}
    for step, prompts in enumerate([PROMPTS, PROMPTS[:1], PROMPTS]):
        sequences, _ = engine(prompts, group_size=4, limit=12, generator=torch.Generator().manual_seed(step))
        found |= {
            f"{step}/{name}": getattr(sequences, name)
            for name in ("prompt_ids", "completion_ids", "completion_mask", "logps")
        }
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
    if ranks.rank == 0:
        save_file({name: value.contiguous() for name, value in found.items()}, out)
    ranks.leave()
    os._exit(0)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
