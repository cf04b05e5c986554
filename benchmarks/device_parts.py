"""The parts of benchmarks/first_gpu.py. Each yields figures as soon as it has them; the key `wrong` names a fault."""

import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from statistics import median
from typing import Any

from ablation.contract.numbers import counted

ROOT = Path(__file__).resolve().parents[1]
Figures = dict[str, Any]

LOSS, GRADIENT = 1e-4, 1e-3  # largest relative differences from one device, or from the CPU, in float32
# Shapes of Qwen2.5-0.5B and SmolLM2-135M, from their config.json, and of the demo's policy.
HALF_BILLION = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
SMOL = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}
DEMO = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# {part of a device's name: (bfloat16 FLOPs without sparsity, bytes of memory bandwidth) per second}, from NVIDIA.
PEAKS = {
    "H200": (989e12, 4.8e12),
    "H100": (989e12, 3.35e12),
    "A100": (312e12, 2.04e12),
    "L40S": (362e12, 0.86e12),
    "L4": (121e12, 0.3e12),
    "RTX 4090": (165e12, 1.01e12),
    "V100": (125e12, 0.9e12),
}


def machine(options: Namespace) -> Figures:
    """Return the names of the devices and the versions of the software."""
    import torch
    import transformers

    cuda = options.device == "cuda"
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if cuda else []
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if cuda:
        versions |= {"cuda": torch.version.cuda, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    return {"what": ", ".join(names) or f"cpu, {os.cpu_count()} cores", **versions}


def grid(options: Namespace) -> Iterator[Figures]:
    """Run a part of the smoke grid on a device and on the CPU at the same time, and one variant again on the device."""
    from benchmarks.oracle import DEMO as variants
    from benchmarks.oracle import differing

    studies = {"debias": ["baseline"]} if options.tiny else {name: list(some) for name, some in variants.items()}
    again = {"debias": ["baseline"]} if options.tiny else {"gspo": ["gspo"]}
    folders = {name: options.out / "grid" / name for name in ("device", "cpu", "again")}
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    on_device = hidden if options.device == "cpu" else {}
    first = [_start_grid(folders["device"], studies, on_device), _start_grid(folders["cpu"], studies, hidden)]
    statuses = [process.wait() for process in first]
    for study in studies:
        stages = sorted(folders["device"].glob(f"stages/{study}/*/*/status.json"))
        yield _beside_the_cpu(study, stages, folders, options.device)
    if any(statuses):
        yield {"what": "snakemake", "wrong": f"exit statuses {statuses} (device, CPU); see grid/*.txt"}
    status = _start_grid(folders["again"], again, on_device).wait()
    differ = {}
    stages = [path.parent for path in sorted(folders["again"].glob("stages/*/*/*/status.json"))]
    for folder in stages:
        earlier = folders["device"] / folder.relative_to(folders["again"])
        if earlier.exists() and (changes := differing(earlier, folder)):
            differ["/".join(folder.parts[-3:])] = changes[0]
    figures = {
        "what": f"two runs of {', '.join(again)} on the device",
        "stages": len(stages),
        "stages that differ": len(differ),
    }
    if status or not stages:
        yield figures | {"wrong": f"exit status {status}; see grid/again.txt"}
    else:
        yield figures | ({"wrong": differ} if differ else {})


def _start_grid(results: Path, studies: dict[str, list[str]], environment: dict[str, str], scale: str = "smoke") -> Any:
    results.parent.mkdir(parents=True, exist_ok=True)
    config = results.with_suffix(".json")
    settings = {"scale": scale, "studies": studies, "results": str(results), "reports": f"{results}-reports"}
    config.write_text(json.dumps(settings))
    cores = max(1, (os.cpu_count() or 2) // 2)
    command = [sys.executable, "-m", "snakemake", "collect", "--cores", str(cores), "--resources", "gpu=1"]
    with results.with_suffix(".txt").open("w") as log:
        return subprocess.Popen(
            [*command, "--configfile", str(config)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=log,
            stderr=log,
        )


def _beside_the_cpu(study: str, statuses: list[Path], folders: dict[str, Path], device: str) -> Figures:
    """Return how much the stages of a study differ from the same stages on the CPU.

    Rounding may make a sampler choose another token, after which two trainings drift apart. So equal samples are
    counted, and losses are compared only at the first step.
    """
    import pandas as pd

    from benchmarks.oracle import rows

    stages, wrong = [json.loads(path.read_text()) for path in statuses], []
    same_words, words, gap, items = 0, 0, 0.0, 0.0
    for path, stage in zip(statuses, stages, strict=True):
        here, there = path.parent, folders["cpu"] / path.parent.relative_to(folders["device"])
        if stage["state"] != "ok":
            wrong.append(f"{stage['stage']}: {stage['state']} ({stage['reason']})")
        samples = [rows(folder / "samples.parquet") for folder in (here, there)]
        if len(samples[0]) == len(samples[1]) and list(samples[0]) == list(samples[1]):
            words += len(samples[0])
            same_words += int((samples[0].astype(str) == samples[1].astype(str)).all(axis=1).sum())
        metrics = [rows(folder / "metrics.parquet") for folder in (here, there)]
        if all(len(each) for each in metrics):
            first = pd.merge(*(each[each["step"] == each["step"].min()] for each in metrics), on=["step", "name"])
            losses = first[first["name"].str.contains("loss")]
            losses = losses[losses["value_x"].notna() | losses["value_y"].notna()]
            differences = (losses["value_x"] - losses["value_y"]).abs() / losses["value_y"].abs().clip(lower=1e-3)
            gap = max([gap, *differences.fillna(inf)])  # not a number on one side alone
        values = [rows(folder / "items.parquet") for folder in (here, there)]
        if all(len(each) for each in values) and len(values[0]) == len(values[1]):
            items = max(items, float((values[0]["value"] - values[1]["value"]).abs().mean()))
    used = sum(stage["device"] != "cpu" for stage in stages)
    figures = {
        "what": f"smoke grid, {study}",
        "stages": len(stages),
        "on a device": used,
        "seconds": sum(s["wall_s"] for s in stages),
    }
    figures |= {
        "equal samples": f"{same_words} of {words}",
        "largest first loss difference": gap,
        "largest mean item difference": items,
    }
    if words == same_words and gap > LOSS:
        wrong.append(f"all samples are equal, but a loss of the first step differs by {gap:.2g}")
    if not stages or (device == "cuda" and not used):
        wrong.append("no stage ran on a device")
    return figures | ({"wrong": "; ".join(wrong)} if wrong else {})


def sampling(options: Namespace) -> Iterator[Figures]:
    """Measure the tokens per second of this project's sampler and of others, with random weights and no early ends."""
    import torch

    shapes = {"0.1M": DEMO} if options.tiny else {"0.1M": DEMO, "135M": SMOL, "0.5B": HALF_BILLION}
    for name, shape in shapes.items():
        model = _model(shape, options.device)
        for prompts, group, tokens in [(2, 4, 8)] if options.tiny else [(8, 8, 128), (32, 16, 128)]:
            ids = torch.randint(3, shape["vocab_size"], (prompts, 48), device=options.device)
            rows = prompts * group
            for way, run in _samplers(model, ids, group, tokens).items():
                figures: Figures = {"what": f"{name}, {rows} responses of {tokens} tokens, {way}"}
                try:
                    with torch.no_grad():
                        seconds = timed(run, options, repeats=3)
                except Exception as error:  # an error of another library must not stop the other measurements
                    yield figures | {"not measured": f"{type(error).__name__}: {str(error)[:200]}"}
                    continue
                figures |= {"tokens/s": rows * tokens / seconds, "seconds": seconds}
                if peaks := peak(options):
                    read = tokens * _bytes_of_a_token(model, rows, 48 + tokens / 2)
                    figures["share of memory bandwidth"] = read / seconds / peaks[1]
                yield figures
        del model
    if not importlib.util.find_spec("vllm"):
        yield {"what": "vLLM", "not measured": "vllm is not installed"}
        return
    yield _sampling_by_vllm(options, (8, 8, 128))


def _samplers(model: Any, ids: Any, group: int, tokens: int) -> dict[str, Callable[[], object]]:
    """Return functions that sample `group` responses of exactly `tokens` tokens to each of the prompts `ids` (B, P)."""
    import torch
    from transformers import GenerationConfig

    from trainers.policy.rollout import sample_all

    mask, repeated = torch.ones_like(ids), [row for row in ids.tolist() for _ in range(group)]
    uniforms = torch.rand(len(ids), group, tokens, dtype=torch.float64)
    lengths = {"max_new_tokens": tokens, "do_sample": True, "top_k": 0, "pad_token_id": 0}
    generate_settings = {**lengths, "min_new_tokens": tokens, "eos_token_id": None, "num_return_sequences": group}
    settings = {"group_size": group, "max_new_tokens": tokens, "uniforms": uniforms, "eos": -1, "pad": 0}
    paged = GenerationConfig(**lengths, eos_token_id=-1)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: sample_all(model, ids, mask, batch_size=None, **settings),  # type: ignore[arg-type]
        "generate": lambda: model.generate(ids, attention_mask=mask, **generate_settings),
    }
    if ids.is_cuda:  # on a CPU it takes a minute for 64 tokens
        ways["continuous batching"] = lambda: model.generate_batch(
            repeated, generation_config=paged, progress_bar=False
        )
    return ways


def _sampling_by_vllm(options: Namespace, sizes: tuple[int, int, int]) -> Figures:
    """Return the speed of this project's engine `vllm`, including the copy of the weights before each rollout."""
    import torch

    from trainers.policy.config import Precision, Vllm
    from trainers.policy.models import Placement, load_policy, load_tokenizer
    from trainers.policy.vllm_engine import VllmEngine

    (prompts, group, tokens), folder = sizes, _policy(options)
    figures: Figures = {"what": f"0.5B, {prompts * group} responses of {tokens} tokens, vLLM with new weights"}
    try:
        place = Placement.of([_first(options)], Precision())
        model, tokenizer = load_policy(folder, place.device), load_tokenizer(folder)
        engine = VllmEngine(model, tokenizer, place, folder, Vllm(longest=512))
        ids = torch.randint(3, len(tokenizer), (prompts, 48)).tolist()

        def run() -> object:
            return engine(ids, group_size=group, limit=tokens, generator=torch.Generator().manual_seed(0))

        seconds = timed(run, options, repeats=2)
    except Exception as error:
        return figures | {"not measured": f"{type(error).__name__}: {str(error)[:200]}"}
    return figures | {"tokens/s if no response ends early": prompts * group * tokens / seconds, "seconds": seconds}


def step(options: Namespace) -> Iterator[Figures]:
    """Measure a training step of `innovations/grpo`, and TRL's step with the same settings and the same policy."""
    import torch

    from ablation.contract.parts import load
    from trainers.objectives.normalized_advantages import normalized_advantages
    from trainers.policy import build, grpo, learner, models, parts
    from trainers.policy.responses import Sampler
    from trainers.running.micro_batch import MicroBatch
    from trainers.running.state import State
    from trainers.tasks.knights_knaves import create

    config, folder = _grpo_config(options), _policy(options)
    config = config.model_copy(update={"kl": config.kl.model_copy(update={"kl_coef": config.kl.kl_coef or 0.02})})
    rollout, update, steps = config.rollout, config.update, 2 if options.tiny else 4
    prompts = rollout.responses // rollout.group_size
    task: Any = create(config.task)
    problems = task.splits({"warm": 1, "train": prompts * (steps + 1), "dev": 1, "test": 1}, 0)["train"]
    place = models.Placement.of([_first(options)], config.precision)
    micro_batch = MicroBatch(update.micro_batch)
    model = models.load_policy(folder, place.device, config.precision, trainable=True)
    tokenizer = models.load_tokenizer(folder)
    generator = torch.Generator().manual_seed(0)
    training = grpo.Run(
        config,
        seed=0,
        take_step=grpo.step,
        problems=problems,
        sampler=Sampler(model, tokenizer, task, config.sampling, place, MicroBatch(rollout.batch_size)),
        rewards=grpo.Rewards(task, config.reward, place, tokenizer.eos_token_id),
        actor=grpo.Actor(
            learner.Learner.adamw(model, lr=update.lr, micro_batch=micro_batch),
            build.build_objective(load(parts.objective_parts(config)), config),
            update,
            place,
            reference=models.frozen_copy(model, place),
            recompute_logps=rollout.recompute_logps,
        ),
        advantages=normalized_advantages,
        token_advantages=None,
        dynamic_sampling=None,
        generators=grpo.Generators(*[generator] * 4),
        progress=grpo.Progress(config.kl.kl_coef),
        state=State({}, {}),
    )
    taken, drawn, lengths = [], [], []
    for number in range(steps):
        began = time.perf_counter()
        metrics = grpo.step(training, number)
        _wait(options)
        taken.append(time.perf_counter() - began)
        drawn.append(metrics["time/sampling_s"])
        lengths.append(metrics["response/length"])
    parameters = sum(each.numel() for each in model.parameters())
    responses = prompts * rollout.group_size
    prompt_tokens = sum(map(len, training.sampler.prompts(problems))) / len(problems)
    tokens = responses * (prompt_tokens + lengths[-1]) * update.epochs
    seconds, sampled = median(taken[1:]), median(drawn[1:])
    figures: Figures = {"what": f"a step of GRPO at {options.scale}, {parameters / 1e6:.3g}M parameters"}
    figures |= {"responses": responses, "tokens of a response": lengths[-1]}
    figures |= {"seconds": seconds, "sampling seconds": sampled}
    yield figures | _memory(options) | _utilisation(options, parameters, tokens, seconds - sampled)
    if not importlib.util.find_spec("trl"):
        yield {"what": "TRL's step", "not measured": "trl is not installed"}
        return
    del training, model
    values = _steps_of_trl(options, config, problems, task=task, steps=steps)
    yield {"what": "TRL's step", "seconds": median(values[1:])} | _memory(options)


def _steps_of_trl(options: Namespace, config: Any, problems: list[Any], *, task: Any, steps: int) -> list[float]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from trainers.policy import models
    from trainers.tasks.interface import by_rule

    update, group = config.update, config.rollout.group_size
    passes, folder = update.epochs * update.minibatches, _policy(options)
    tokenizer, asked = models.load_tokenizer(folder), {problem.prompt: problem for problem in problems}
    ended = [time.perf_counter()]

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % passes == 0:
                _wait(options)
                ended.append(time.perf_counter())

    def reward(prompts: list[str], completions: list[str], completion_ids: list[Any], **kwargs: Any) -> list[float]:
        finished = [ids[-1] == tokenizer.eos_token_id for ids in completion_ids]
        return by_rule(task, [asked[prompt] for prompt in prompts], completions, finished)[0]

    rows = config.rollout.responses // update.minibatches
    at_once = rows // max(1, rows // (update.micro_batch or rows))
    settings = GRPOConfig(
        str(options.out / "trl"),
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=rows // at_once,
        steps_per_generation=update.minibatches * (rows // at_once),
        num_iterations=update.epochs,
        num_generations=group,
        max_steps=steps * passes,
        beta=config.kl.kl_coef,
        loss_type="grpo",
        learning_rate=update.lr,
        lr_scheduler_type="constant",
        adam_beta2=update.betas[1],
        max_completion_length=config.sampling.max_new_tokens,
        top_k=0,
        use_cpu=options.device == "cpu",
        bf16=config.precision.compute == "bfloat16",
        gradient_checkpointing=config.precision.activation_checkpointing,
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
    )
    trainer = GRPOTrainer(
        models.load_policy(folder, models.torch.device(_first(options)), trainable=True),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": list(asked)}),
        processing_class=tokenizer,
        callbacks=[Watch()],
    )
    trainer.train()
    return [after - before for before, after in itertools.pairwise(ended)]


def debias(options: Namespace) -> Iterator[Figures]:
    """Measure training steps of `debias` with GPT-2 Medium's shape, without and with a GRPO term."""
    import pandas as pd

    scale, results = "smoke" if options.tiny else "first_gpu", options.out / "debias" / "results"
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {}
    if exit_status := _start_grid(results, {"debias": ["v1"]}, hidden, scale).wait():
        yield {"what": "snakemake", "wrong": f"exit status {exit_status}; see debias/results.txt"}
    for path in sorted(results.glob("stages/debias/train/*/status.json")):
        status, planned = (json.loads(path.with_name(name).read_text()) for name in (path.name, "config.json"))
        if not planned["config"]["editing"]:
            continue  # nothing is trained
        metrics = pd.read_parquet(path.with_name("metrics.parquet"))
        seconds = metrics[metrics["name"] == "train/wall_s"]["value"]
        term = "with" if planned["config"]["grpo"]["weight"] else "without"
        figures: Figures = {"what": f"a training step of debias at {scale}, {term} a GRPO term"}
        figures |= {"seconds": float(seconds.median()), "steps": len(seconds)}
        figures |= {"memory, GiB": status["device_memory_mb"] / 1024} if "device_memory_mb" in status else {}
        yield figures | ({} if status["state"] == "ok" else {"wrong": status["reason"]})


def critic(options: Namespace) -> Iterator[Figures]:
    """Measure an update of GAD's critic on pairs of a teacher's and a student's response."""
    import torch

    from trainers.gad.config import Update
    from trainers.gad.critic import update_critic
    from trainers.objectives.final_discriminator import final_discriminator
    from trainers.policy.config import Precision
    from trainers.policy.learner import Learner
    from trainers.policy.models import Placement
    from trainers.policy.value_model import ValueModel
    from trainers.running.micro_batch import MicroBatch

    compute: Any = "bfloat16" if options.device == "cuda" else "float32"
    prompts, group, length = (2, 2, 16) if options.tiny else (32, 8, 256)
    place = Placement.of([_first(options)], Precision(compute=compute, activation_checkpointing=not options.tiny))
    model = ValueModel.from_causal(_policy(options), place, sees_token=True)
    learner = Learner.adamw(model, lr=1e-6, micro_batch=MicroBatch(1 if not options.tiny else None))
    vocabulary = model.body.config.vocab_size
    teacher, student = (_sequences(rows, length, vocabulary).to(_first(options)) for rows in (prompts, prompts * group))
    loss, update = final_discriminator, Update()

    def run() -> object:
        generator = torch.Generator().manual_seed(0)
        return update_critic(learner, loss, teacher, student, update=update, pooling="last", generator=generator)

    seconds = timed(run, options, repeats=2)
    parameters = sum(each.numel() for each in model.parameters())
    tokens = (prompts * group + prompts) * length
    figures: Figures = {
        "what": f"an update of GAD's critic, {parameters / 1e6:.3g}M parameters",
        "pairs": prompts * group,
    }
    yield figures | {"seconds": seconds} | _memory(options) | _utilisation(options, parameters, tokens, seconds)


def devices(options: Namespace) -> Iterator[Figures]:
    """Take the same supervised steps on 1, 2, 4, ... devices, with a process for each; compare the results."""
    import torch

    visible = torch.cuda.device_count() if options.device == "cuda" else 2
    for compute in ("float32", "bfloat16") if options.device == "cuda" else ("float32",):
        results: list[Figures] = []
        for count in options.counts or [2**power for power in range(16) if 2**power <= visible]:
            folder = options.out / "devices" / f"{compute}-{count}"
            folder.mkdir(parents=True, exist_ok=True)
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
            settings = {"device": options.device, "tiny": options.tiny, "model": options.model, "compute": compute}
            command = [sys.executable, *launcher, __file__, json.dumps({**settings, "out": str(folder)})]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
            with (folder / "log.txt").open("w") as log:
                subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)
            results.append(json.loads((folder / "figures.json").read_text()) | {"folder": folder})
            yield _beside_the_first(results[0], results[-1], compute)


def _beside_the_first(first: Figures, figures: Figures, compute: str) -> Figures:
    """Return `figures` with their differences from `first`, the figures of the first number of devices."""
    from safetensors.torch import load_file

    reference, own = (load_file(each["folder"] / "gradients.safetensors") for each in (first, figures))
    size = sum(float(each.double().square().sum()) for each in reference.values()) ** 0.5
    gap = sum(float((own[name].double() - reference[name].double()).square().sum()) for name in reference) ** 0.5
    pairs = zip(figures["values"], first["values"], strict=True)
    apart = max(inf if isnan(a) else abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)
    shown = {name: value for name, value in figures.items() if name not in ("folder", "values")}
    shown |= {"speedup": figures["tokens/s"] / first["tokens/s"]}
    shown |= {"gradient difference": gap / size, "loss and norm difference": apart}
    loose = 1 if compute == "float32" else 100  # in bfloat16 the order of a sum changes it by a thousandth or more
    equal = gap / size <= loose * GRADIENT and apart <= loose * LOSS and set(own) == set(reference) and size > 0
    return shown | ({} if equal else {"wrong": "the results differ from those of the first number of devices"})


def take_steps(options: Namespace) -> None:
    """Take the steps of `devices` as one rank; the first rank writes gradients and figures to `options.out`."""
    import torch
    from safetensors.torch import save_file

    from ablation.runner.ranks import ALONE, Ranks
    from trainers.policy.config import Precision
    from trainers.policy.learner import Learner
    from trainers.policy.models import Placement
    from trainers.policy.supervised import fit
    from trainers.running.micro_batch import MicroBatch

    rows, length, at_once, steps = (6, 24, 2, 3) if options.tiny else (16, 512, 4, 6)
    name = "cpu" if options.device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    ranks: Ranks = ALONE
    if "RANK" in os.environ:
        from trainers.parallel.group import Group

        ranks = Group.join(torch.device(name))
    model = _model(HALF_BILLION if not options.tiny else DEMO, "cpu", folder=options.model)
    parameters, config = sum(each.numel() for each in model.parameters()), model.config
    batch = _sequences(rows, length, config.vocab_size).to(name)
    placement = Placement.of([name], Precision(compute=options.compute), ranks)
    model = placement.shard(model.to(name))
    micro_batch = MicroBatch(at_once, ranks=ranks)
    learner = Learner.adamw(model, lr=1e-5, micro_batch=micro_batch)
    gradients: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        for key, parameter in model.named_parameters():
            gradient = ranks.full_tensor(parameter.grad)
            if ranks.rank == 0 and key not in gradients:
                gradients[key] = gradient.detach().cpu().contiguous()

    hook = learner.optimizer.register_step_pre_hook(keep)
    losses, norms, seconds = [], [], []
    for number in range(steps):
        began = time.perf_counter()
        sums, norm = fit(learner, batch, placement)
        losses.append(sum(each.item() for each in sums))
        norms.append(float(norm))
        seconds.append(time.perf_counter() - began)  # .item() waited for the device
        if number == 0:
            hook.remove()  # so that the peak does not include the gathered gradients
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
    peaks = ranks.gather(_memory(options).get("memory, GiB"))
    halved = ranks.gather(micro_batch.size)
    if ranks.rank == 0:
        save_file(gradients, options.out / "gradients.safetensors")
        steady = median(seconds[2:])
        figures: Figures = {
            "what": f"{counted(ranks.size, 'device')}, {options.compute}, {rows} rows of {length} tokens",
            "values": losses + norms,
        }
        figures |= {"step, s": steady, "tokens/s": rows * length / steady, "micro-batches": halved}
        figures["memory, GiB"] = peaks
        figures |= _utilisation(options, parameters, rows * length, steady * ranks.size)
        (options.out / "figures.json").write_text(json.dumps(figures))
    if ranks is not ALONE:
        ranks.leave()


def tests(options: Namespace) -> Iterator[Figures]:
    """Run the tests of updates and of whole stages on several devices."""
    import torch

    if options.device == "cpu" or torch.cuda.device_count() < 2 or not importlib.util.find_spec("pytest"):
        yield {"what": "tests/trainers/parallel", "not run": "these tests need two devices and pytest"}
        return
    files = [str(ROOT / "tests" / "trainers" / "parallel" / name) for name in ("test_updates.py", "test_stages.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "ABLATION_TEST_DEVICE": options.device}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    summary = (done.stdout.strip().splitlines() or ["no output"])[-1]
    yield {"what": summary} | ({"wrong": f"exit status {done.returncode}"} if done.returncode else {})


def paper(options: Namespace) -> Iterator[Figures]:
    """Estimate the cost of a run at scale `paper` from the figures of the other parts."""
    from ablation.config.settings import load_settings
    from ablation.config.variants import load_studies

    steps, wide = _written(options, "step"), _written(options, "debias")
    for study in ("gspo", "innovations"):
        variants = load_studies(load_settings({"studies": [study], "scale": "paper"}))[study].variants
        root = next(variant for variant in variants.values() if variant.parent is None)
        config: Any = root.resolved
        figures: Figures = {"what": f"{study}, {root.name}, one seed", "steps": config.steps}
        if steps and options.scale == "paper":
            figures["device-hours"] = (
                config.steps * steps[0]["seconds"] * config.rollout.responses / steps[0]["responses"] / 3600
            )
        yield figures
    if wide:
        yield {"what": "debias", "seconds of a training step": wide[-1]["seconds"]}


def _written(options: Namespace, part: str) -> list[Figures]:
    path = options.out / f"{part}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _grpo_config(options: Namespace) -> Any:
    from ablation.config.settings import load_settings
    from ablation.config.variants import load_studies
    from trainers.policy.config import PolicyConfig
    from trainers.tasks.settings import KnightsKnaves

    variant = load_studies(load_settings({"studies": ["innovations"], "scale": options.scale}))["innovations"].variants[
        "grpo"
    ]
    changes: Figures = {"task": KnightsKnaves()}  # a model with random weights cannot follow instructions
    if options.device == "cpu":
        changes["precision"] = PolicyConfig().precision
    config: Any = variant.resolved
    return config.model_copy(update=changes)


def _policy(options: Namespace) -> Path:
    """Return the folder of the policy: `options.model`, or a new policy with random weights."""
    from trainers.policy.models import save_policy
    from trainers.policy.text import word_tokenizer
    from trainers.tasks.knights_knaves import WORDS

    if options.model:
        return Path(options.model)
    folder: Path = options.out / "policy"
    if not (folder / "config.json").exists():
        tokenizer, shape = word_tokenizer(WORDS), DEMO if options.tiny else HALF_BILLION
        save_policy(folder, _model(shape, "cpu", end=tokenizer.eos_token_id), tokenizer)
    return folder


def _model(shape: dict[str, int], device: str, *, folder: str | None = None, end: int | None = None) -> Any:
    """Return the float32 model in `folder`, or else a Qwen2 with the same random weights in every process.

    The Qwen2 is bfloat16 on a GPU.
    """
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    if folder:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = Qwen2Config(**shape, max_position_embeddings=32768, tie_word_embeddings=True, eos_token_id=end)
    config._attn_implementation = "sdpa"
    return Qwen2ForCausalLM(config).to(device, torch.bfloat16 if device == "cuda" else torch.float32).eval()


def _sequences(rows: int, length: int, vocabulary: int) -> Any:
    """Return rows of random tokens without padding: half of each row is the prompt, half is the response."""
    import torch

    from trainers.policy.batch import Sequences

    half = length // 2
    ids = torch.randint(vocabulary, (rows, 2 * half), generator=torch.Generator().manual_seed(1))
    ones = torch.ones(rows, half, dtype=torch.long)
    return Sequences(ids[:, :half], ones, ids[:, half:], ones)


def timed(run: Callable[[], object], options: Namespace, repeats: int) -> float:
    """Return the median wall time of a run in seconds, after one run as a warm-up."""
    seconds = []
    for _ in range(repeats + 1):
        _wait(options)
        began = time.perf_counter()
        run()
        _wait(options)
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])


def peak(options: Namespace) -> tuple[float, float] | None:
    """Return the device's FLOPs and bytes of memory bandwidth per second; None if it is not in `PEAKS`."""
    import torch

    name = torch.cuda.get_device_name() if options.device == "cuda" else ""
    return next((rates for part, rates in PEAKS.items() if part in name), None)


def _utilisation(options: Namespace, parameters: int, tokens: float, seconds: float) -> Figures:
    """Return the model FLOPs utilisation, without attention: 6 FLOPs per parameter and token (arXiv 2204.02311)."""
    peaks = peak(options)
    return {} if peaks is None else {"MFU": 6 * parameters * tokens / seconds / peaks[0]}


def _bytes_of_a_token(model: Any, rows: int, context: float) -> float:
    """Return the bytes read to sample a token in every row: all weights, and each row's cache of `context` tokens."""
    config = model.config
    width = config.hidden_size // config.num_attention_heads * config.num_key_value_heads
    cached = 2 * config.num_hidden_layers * width * context * rows
    return float(model.dtype.itemsize * (sum(each.numel() for each in model.parameters()) + cached))


def _memory(options: Namespace) -> Figures:
    """Return the peak memory that torch has allocated since the last call, in GiB; {} on a CPU."""
    import torch

    if options.device == "cpu":
        return {}
    most = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return {"memory, GiB": most}


def _first(options: Namespace) -> str:
    return "cpu" if options.device == "cpu" else "cuda:0"


def _wait(options: Namespace) -> None:
    import torch

    if options.device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Part:
    """Function of a part, and its time limit in seconds."""

    run: Callable[[Namespace], Iterator[Figures]]
    seconds: int


PARTS = {  # 15 minutes in all
    "grid": Part(grid, 260),
    "sampling": Part(sampling, 160),
    "step": Part(step, 140),
    "debias": Part(debias, 60),
    "critic": Part(critic, 50),
    "devices": Part(devices, 80),
    "tests": Part(tests, 120),
    "paper": Part(paper, 30),
}

if __name__ == "__main__":  # a rank of `devices`
    given = json.loads(sys.argv[1])
    take_steps(Namespace(**{**given, "out": Path(given["out"])}))
