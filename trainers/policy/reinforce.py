"""Stage `reinforce` of the studies `innovations` and `gspo`: sample responses, reward them, update the policy.

One step is in `grpo.py`, or in `ppo.py` with a critic. docs/studies/metrics/policy.md defines the metrics.
"""

import time

from trainers.parallel import join
from trainers.policy.build import build
from trainers.policy.config import PolicyConfig
from trainers.policy.grpo import Run
from trainers.policy.measure import measure
from trainers.policy.models import POLICY, save_policy
from trainers.policy.sources import KEPT, keeping, measured_steps
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage
from trainers.running.state import run_steps
from trainers.tasks.interface import Problem, read_problems

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train the policy of one variant with one seed, from the shared warm start."""
    config: PolicyConfig = stage.config
    training = build(stage)
    policy, tokenizer = training.sampler.model, training.sampler.tokenizer
    dev = read_problems(stage.inputs["task_data"] / "dev.jsonl")
    micro_batch = stage.micro_batch(config.evaluate.batch_size)

    def step(number: int) -> None:
        stage.log_metrics(number + 1, timed_step(training, number))
        if number + 1 in kept:
            with keeping(stage.out / KEPT, number + 1) as folder:
                save_policy(folder, policy, tokenizer, stage.ranks)

    kept = measured_steps(config.steps, config.evaluate.checkpoints)[:-1]
    first, state = training.state.restore(stage), training.state
    if first == 0:
        stage.log_metrics(0, development(training, dev, micro_batch))
    run_steps(stage, step, steps=config.steps, first=first, state=state, checkpoint_every=config.checkpoint_every)
    stage.log_metrics(config.steps, development(training, dev, micro_batch))
    save_policy(stage.out / POLICY, policy, tokenizer, stage.ranks)


def timed_step(training: Run, number: int) -> dict[str, float]:
    """Take one training step; return its metrics, including its duration in seconds."""
    started = time.monotonic()
    metrics = training.take_step(training, number)
    seconds = time.monotonic() - started
    training.progress.elapsed += seconds
    update = seconds - metrics["time/sampling_s"]
    return metrics | {"time/update_s": update, "time/elapsed_s": training.progress.elapsed}


def development(training: Run, problems: list[Problem], micro_batch: MicroBatch) -> dict[str, float]:
    """Return accuracy and model reward, if they are defined, on the development split."""
    results = measure(training.sampler, problems, training.config.evaluate, micro_batch, training.rewards.model)
    return {
        f"dev/{protocol}_{name}": sum(values[name]) / len(values[name])
        for protocol, values in results.items()
        for name in ("accuracy", "model_reward")
        if name in values
    }
