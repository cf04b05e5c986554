"""A step of GRPO (responses, rewards, update) beside TRL's GRPOTrainer with the same settings, in one process.

    make grid STUDY=innovations && make peers
    .venv-peers/trl/bin/python benchmarks/grpo.py results/stages/innovations/warm_start/*/policy

In turns, from the first policy named: 32 prompts x 8 responses, 2 epochs of 2 minibatches, KL 0.02, one thread.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes `trainers` importable

import torch

from trainers.objectives.normalized_advantages import normalized_advantages
from trainers.policy import build, config, formulas, grpo, learner, models, parts
from trainers.policy.responses import Sampler
from trainers.policy.rewards import Rewards
from trainers.running.state import State
from trainers.tasks.interface import by_rule
from trainers.tasks.knights_knaves import create

torch.set_num_threads(1)
STEPS = 10
CONFIG = config.PolicyConfig(kl={"coef": 0.02}, rollout={"responses": 256})
GROUP = CONFIG.rollout.group_size
PROMPTS = CONFIG.rollout.responses // GROUP
UPDATE = CONFIG.update
PASSES = UPDATE.epochs * UPDATE.minibatches
TASK = create(CONFIG.task)
PROBLEMS = TASK.splits({"warm": 1, "train": PROMPTS * (STEPS + 1), "dev": 1, "test": 1}, 0)["train"]
SECONDS: dict[str, list[float]] = {"ours": [], "ours, sampling": [], "TRL": [], "TRL, sampling": []}


@contextmanager
def timed(name: str) -> Iterator[None]:
    started = time.process_time()
    yield
    SECONDS[name].append(time.process_time() - started)


def main() -> None:
    """Train both in turns and print what a step of each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", type=Path, help="folders of policies, of which the first is taken")
    folder = parser.parse_args().policies[0]
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    place = models.Placement.of(["cpu"], CONFIG.precision)
    model = models.load_policy(folder, place.device, trainable=True)
    tokenizer = models.load_tokenizer(folder)
    learns = learner.Learner.adamw(model, lr=UPDATE.lr)
    objective = build.build_objective(parts.formulas(CONFIG), CONFIG)
    Sampler.responses = timed("ours, sampling")(Sampler.responses)  # type: ignore[method-assign]
    generator = torch.Generator().manual_seed(0)
    run = grpo.Run(
        CONFIG,
        formulas.Parts(task=create, advantages=normalized_advantages),
        seed=0,
        problems=PROBLEMS,
        sampler=Sampler(model, tokenizer, TASK, CONFIG.sampling, place),
        rewards=Rewards(TASK, CONFIG.reward, place, tokenizer.eos_token_id),
        actor=grpo.Actor(learns, objective, UPDATE, place, reference=models.frozen_copy(model, place)),
        generators=grpo.Generators(*[generator] * 4),
        progress=grpo.Progress(CONFIG.kl.coef),
        state=State({}, {}),
    )
    asked = {problem.prompt: problem for problem in PROBLEMS}
    step = timed("ours")(grpo.step)

    class InTurns(TrainerCallback):
        ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % PASSES == 0:
                SECONDS["TRL"].append(time.process_time() - self.ended)
                step(run, 0)
                self.ended = time.process_time()

    def reward(prompts: list[str], completions: list[str], completion_ids: list[Any], **kwargs: Any) -> list[float]:
        whole = [ids[-1] == tokenizer.eos_token_id for ids in completion_ids]
        return by_rule(TASK, [asked[prompt] for prompt in prompts], completions, whole)[0]

    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            out,
            per_device_train_batch_size=PROMPTS * GROUP // UPDATE.minibatches,
            steps_per_generation=UPDATE.minibatches,
            num_iterations=UPDATE.epochs,
            num_generations=GROUP,
            max_steps=(STEPS + 1) * PASSES,
            beta=CONFIG.kl.coef,
            loss_type="grpo",
            learning_rate=UPDATE.lr,
            lr_scheduler_type="constant",
            adam_beta2=UPDATE.betas[1],
            max_completion_length=CONFIG.sampling.max_new_tokens,
            top_k=0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        )
        trl = GRPOTrainer(
            models.load_policy(folder, place.device, trainable=True),
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": list(asked)}),
            processing_class=tokenizer,
            callbacks=[InTurns()],
        )
        trl._generate = timed("TRL, sampling")(trl._generate)
        trl.train()
    for name, values in SECONDS.items():
        low, median, high = statistics.quantiles(values[1:], n=4)  # the first one warms up
        print(f"{name:<15} {median:.3f} CPU seconds, quartiles {low:.3f} and {high:.3f}")


if __name__ == "__main__":
    main()
