"""A policy and the engine that samples for it."""

import torch

from trainers.policy.config import Precision, Vllm
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.vllm_engine import VllmEngine

CPU = Placement.of(["cpu"], Precision())


class Engine:
    """Both, with the weights of the start."""

    def __init__(self, folder):
        self.folder = folder
        self.model = load_policy(folder, torch.device("cpu"), trainable=True)
        self.tokenizer = load_tokenizer(folder)
        self.start = {name: value.detach().clone() for name, value in self.model.named_parameters()}
        self.engine = VllmEngine(self.model, self.tokenizer, CPU, folder, Vllm())

    def __call__(self, prompts, seed=0, **settings):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return self.engine(prompts, **{"group_size": 4, "limit": 20, "generator": generator, **settings})
