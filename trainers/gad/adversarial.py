"""Stages `warmup` and `gad` of study `gad`: sample responses, score them, update student and critic (arXiv 2511.10643).

`Trainer.step` is one step. The student learns by GSPO, or by cross-entropy on the teacher's responses. In the first
`critic_warmup` steps of a stage (by default 10 in `warmup` and 0 in `gad`) only the critic learns.
docs/studies/metrics/gad.md defines the metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.gad.config import Adversarial, GadConfig
from trainers.gad.critic import (
    build_loss,
    compare,
    difference_limit,
    new_critic,
    same_text,
    score,
    teacher_scores_of,
    update_critic,
)
from trainers.gad.data import generator, number_of_steps, response_limit, rows_of_step, teacher_lengths
from trainers.gad.measure import measure, qualities, quality_metrics, rule_of
from trainers.gad.students import MEASURED, keep_models, latest_critic, latest_student, save_models
from trainers.objectives.policy import StepMetrics, Sum, group_metrics
from trainers.parallel import join
from trainers.policy.batch import Sequences
from trainers.policy.grpo import Actor, Objective, sampler_gap
from trainers.policy.learner import Learner, learner_of, minibatches, state_of
from trainers.policy.models import Placement, load_policy_and_reference, load_tokenizer
from trainers.policy.responses import Responder, start_engine
from trainers.policy.sources import asset_files, measured_steps
from trainers.policy.supervised import Examples, fit
from trainers.policy.text import decode
from trainers.policy.value_model import ValueModel
from trainers.running.micro_batch import OutOfMemory
from trainers.running.stage import Stage
from trainers.running.state import run_steps
from trainers.tasks.interface import Problem, read_problems

RANKS = join  # several devices: a process for each
EARLIER = {"warmup": ("seqkd", "base"), "gad": ("warmup", "seqkd", "base")}  # inputs with a student, the latest first
# The policy engine's names of metrics, and the names of the same metrics in this study's source.
ACTOR_METRICS = {
    "policy/loss": "actor/pg_loss",
    "policy/clip_fraction": "actor/pg_clipfrac",
    "policy/approx_kl": "actor/ppo_kl",
    "policy/kl_loss": "actor/kl_loss",
    "kl/divergence": "actor/kl",
    "policy/entropy": "actor/entropy",
    "policy/grad_norm": "actor/grad_norm",
}


def run(stage: Stage) -> None:
    """Run the stage `warmup` or `gad` and save its student and critic; do nothing if the stage is not enabled."""
    name = stage.id.rpartition(".")[2]
    if not getattr(stage.config, name).enabled:
        stage.log.info("%s.enabled is false, so nothing is trained", name)
        return

    # The last students are kept, because the evaluation can average over several checkpoints.
    trainer = Trainer(stage)
    dev = read_problems(stage.inputs["data"] / "dev.jsonl")
    first, every = trainer.restore(), stage.config.keep_checkpoints
    measured = measured_steps(trainer.steps, stage.config.evaluate.checkpoints)[:-1] if name == "gad" else []
    if any(number < 1 for number in measured):
        raise ValueError(
            f"evaluate.checkpoints {len(measured) + 1} exceeds the number of steps, {trainer.steps}; lower "
            "evaluate.checkpoints"
        )
    if first == 0:
        stage.log_metrics(trainer.first_step, trainer.before())

    def step(number: int) -> None:
        done = trainer.first_step + number + 1
        stage.log_metrics(done, trainer.step(number))
        if every and done % every == 0:
            keep_models(stage, done, trainer.student, trainer.tokenizer, trainer.critic)
        if number + 1 in measured:
            keep_models(stage, done, trainer.student, trainer.tokenizer, trainer.critic, among=MEASURED)

    # The models are saved before the last measurement, which may run out of memory.
    state, steps = trainer.state, trainer.steps
    run_steps(stage, step, steps=steps, first=first, state=state, checkpoint_every=stage.config.checkpoint_every)
    save_models(stage.out, trainer.student, trainer.tokenizer, trainer.critic, ranks=stage.ranks)
    try:
        figures = trainer.measure(dev)
    except OutOfMemory as error:  # not fatal, because the models are saved and the stage `evaluate` measures them
        if stage.ranks.size > 1:
            raise  # other ranks wait for this one
        stage.log.warning("the development split is not measured: %s", error)
        return
    stage.log_metrics(trainer.first_step + steps, figures)


@dataclass
class Progress:
    """Values in a checkpoint in addition to models and optimisers."""

    student_steps: int = 0  # steps that the student's optimiser has taken


class Trainer:
    """Training of a student and a critic in one stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.name = stage, stage.id.rpartition(".")[2]
        config: GadConfig = stage.config
        self.config, settings = config, getattr(config, self.name)
        self.settings: Adversarial = settings
        placement = Placement.of(stage.devices, config.precision, stage.ranks, stage.parts.get("adapters"))
        self.placement = placement

        # The reference is the student at the start of this stage; only GSPO with a KL needs it.
        folder = latest_student(stage, EARLIER[self.name])
        self.tokenizer = load_tokenizer(folder)
        needed = settings.kl_coef > 0 and settings.student == "gspo"
        self.student, reference = load_policy_and_reference(
            folder, placement, config.memory, stage.seed, reference=needed
        )
        # Created once, so that a size that was reduced for lack of memory is kept.
        self.sampling_micro_batch = stage.micro_batch(config.rollout.batch_size)
        self.scoring_micro_batch = stage.micro_batch(config.rollout.batch_size)
        self.actor = self._actor(reference)

        # The critic continues from the stage before, or starts with the student's body.
        self.critic = placement.shard(stage.ranks.build(lambda: self._critic(folder)))
        self.critic_learner = Learner.adamw(
            self.critic,
            lr=settings.critic_lr,
            betas=config.critic.betas,
            max_grad_norm=config.critic.max_grad_norm,
            micro_batch=stage.micro_batch(config.critic.micro_batch),
        )
        self.loss = build_loss(config, stage.parts["discriminator"])

        # The steps of `gad` are counted from the end of the warm-up.
        self.task = rule_of(stage)
        self.lengths = teacher_lengths(stage.inputs["data"])
        self.problems = read_problems(stage.inputs["data"] / "train.jsonl")
        self.steps = self._steps_of(settings)
        self.first_step = self._steps_of(config.warmup) if self.name == "gad" and config.warmup.enabled else 0

        # A checkpoint holds both learners and the number of the student's steps.
        learners = {"student": self.actor.learner, "critic": self.critic_learner}
        self.progress = Progress()
        self.state = state_of(learners, self.progress)
        count_steps(self.student, self.actor.learner.optimizer)

        # The teacher's responses have the student's length limit, so that their length does not give them away.
        self.limit = response_limit(config, self.lengths)  # longest response, in tokens
        teacher = Examples.of(self.tokenizer, self.problems, [problem.answer for problem in self.problems])
        self.student_examples = teacher.cut(self.limit)
        self.critic_examples = teacher.cut(self.limit, end_token=config.critic.end_token)

        # Either the student samples, or an engine with a copy of its weights.
        self.responder = Responder(self.student, self.tokenizer, placement)
        self.engine: Any = start_engine(
            stage,
            config.rollout,
            self.responder,
            folder,
            learners=learners.values(),
            version=lambda: steps_taken(self.student),
        )

    def restore(self) -> int:
        """Restore the last checkpoint, if there is one, and return the number of finished steps."""
        done = self.state.restore(self.stage)
        self.student.get_buffer(_BUFFER).fill_(self.progress.student_steps)
        return done

    def before(self) -> dict[str, float]:
        """Return the metrics that are known before the first step; warn if `critic_warmup` exceeds the steps."""
        missing = max(0, self.settings.critic_warmup - self.steps)
        if missing:
            self.stage.log.warning(
                "the student does not learn in the stage %s, because critic_warmup %d exceeds the number of steps, %d; "
                "lower critic_warmup, or train longer",
                self.name,
                self.settings.critic_warmup,
                self.steps,
            )
        values = {"critic/missing_warmup_steps": float(missing), "critic/diff_limit": difference_limit(self.config)}
        if self.config.critic.init == "student":
            values["critic/prior_steps"] = self.first_step
        return values

    def step(self, step: int) -> dict[str, float]:
        """Sample responses, score them and update student and critic; return the step's metrics.

        The student gives G responses to each of B prompts (N = B * G), stored prompt by prompt, and the teacher gives
        one.
        """
        config, group = self.config, self.config.rollout.group_size
        indices = self._indices_of(step)  # B indices of self.problems

        # 1. The student responds. The policy lag is 0 unless the sampler's weights are stale.
        sequences, texts = self._respond(indices, step)
        sampled_by = steps_taken(self.responder.model) if self.engine is None else self.engine.weights_version
        metrics = {"rollout/policy_lag": float(steps_taken(self.student) - sampled_by)}
        teacher = self.critic_examples.batch(indices).to(self.placement.device)

        # 2. The critic scores the student's responses (N,) and the teacher's (B,), which are repeated to pairs (N,).
        student_scores = score(self.critic, sequences, self.scoring_micro_batch, config.pooling)
        scores_by_prompt = score(self.critic, teacher, self.scoring_micro_batch, config.pooling)
        prompts = torch.arange(len(indices), device=sequences.completion_mask.device).repeat_interleave(group)
        teacher_scores = teacher_scores_of(teacher, scores_by_prompt, sequences, student_scores, prompts)
        metrics |= compare(self.loss, teacher_scores, student_scores)
        teacher_texts = decode(self.tokenizer, teacher.completion_ids, teacher.completion_mask)
        repeated = [text for text in teacher_texts for _ in range(group)]  # N
        metrics |= same_text(repeated, texts, teacher_scores, student_scores)

        # 3. Scores are the rewards (N,); advantages (N,) are relative to the group.
        rewards = student_scores.raw.cpu()
        advantages = self.stage.parts["advantages"](rewards, group)
        metrics |= self._rollout_metrics(indices, sequences, texts, rewards, advantages)

        # 4. The student learns from its own responses, or from the teacher's.
        if step >= self.settings.critic_warmup:
            if self.settings.student == "cross_entropy":
                metrics |= self._imitate_teacher(indices, step)
            else:
                metrics |= self._reinforce_student(sequences, advantages, step)
        self.progress.student_steps = steps_taken(self.student)

        # 5. The critic learns to give the teacher's response of each pair the higher score.
        return metrics | update_critic(
            self.critic_learner,
            self.loss,
            teacher,
            sequences,
            update=config.update,
            pooling=config.pooling,
            generator=self._generator("critic minibatches", step),
        )

    def measure(self, rows: list[Problem]) -> dict[str, float]:
        """Return the metrics `dev/<protocol>_<name>`: the means of the evaluation's values over development rows."""
        frame = measure(
            self.student,
            self.tokenizer,
            rows,
            config=self.config,
            task=self.task,
            placement=self.placement,
            lengths=self.lengths,
            critic=self.critic,
            micro_batch=self.stage.micro_batch(self.config.evaluate.batch_size),
        )
        means = frame.groupby(["protocol", "name"])["value"].mean()
        return {f"dev/{protocol}_{name}": value for (protocol, name), value in means.items()}

    def _actor(self, reference: nn.Module | None) -> Actor:
        config, update = self.config, self.config.update
        surrogate = partial(self.stage.parts["surrogate"], **config.clip.model_dump())
        return Actor(
            learner=learner_of(self.stage, self.student, self.settings.actor_lr, update),
            objective=Objective(self.stage.parts["ratio"], surrogate, aggregation=update.aggregation),
            update=update,
            placement=self.placement,
            reference=reference,
            temperature=config.sampling.temperature or 1.0,
            recompute_logps=config.rollout.recompute_logps,
        )

    def _critic(self, student: Path) -> ValueModel:
        folder = latest_critic(self.stage, EARLIER[self.name])
        memory_settings, seed = self.config.memory, self.stage.seed
        if folder is not None:
            return ValueModel.load(folder, self.placement, sees_token=True).with_adapters(memory_settings, seed)
        if self.name == "gad" and self.config.critic.init == "student":
            self.stage.log.warning(
                "the critic is untrained, because warmup.enabled is false; set warmup.enabled to true, or critic.init "
                "to reward_model"
            )
        new_head = self._generator("critic head", 0)
        reward_model = asset_files(self.stage, "reward_model")
        made = new_critic(self.config.critic, student, reward_model, self.placement, new_head)
        return made.with_adapters(memory_settings, seed)

    def _respond(self, indices: Sequence[int], step: int) -> tuple[Sequences, list[str]]:
        respond, temperature = self.engine or self.responder, self.config.sampling.temperature
        return respond(
            [self.student_examples.prompts[index] for index in indices],
            group_size=self.config.rollout.group_size,
            limit=self.limit,
            temperature=temperature or 1.0,
            generator=None if temperature is None else self._generator("sampling", step),
            micro_batch=self.sampling_micro_batch,
        )

    def _reinforce_student(self, sequences: Sequences, advantages: Tensor, step: int) -> dict[str, float]:
        batch = self.actor.batch(sequences, advantages)
        gap = sampler_gap(self.actor, batch, self.config.precision.compute)
        kl_coef = self.settings.kl_coef
        figures = self.actor.learn(batch, kl_coef=kl_coef, generator=self._generator("minibatches", step))
        return {logged: figures[name] for name, logged in ACTOR_METRICS.items() if name in figures} | gap

    def _imitate_teacher(self, indices: Sequence[int], step: int) -> dict[str, float]:
        """Update the student on the teacher's responses, in as many minibatches as on its own; return metrics."""
        teacher, learner, step_metrics = self.student_examples.batch(indices), self.actor.learner, StepMetrics()
        teacher = teacher.to(self.placement.device)
        with learner.training():
            for chosen in minibatches(len(indices), self.config.update, self._generator("minibatches", step)):
                losses, norm = fit(learner, teacher.select(chosen), self.placement)
                loss = Sum(torch.stack(losses).sum())
                step_metrics.close_minibatch({"actor/sft_loss": loss, "actor/grad_norm": Sum(norm)})
        return step_metrics.compute()

    def _rollout_metrics(
        self, indices: Sequence[int], sequences: Sequences, texts: list[str], rewards: Tensor, advantages: Tensor
    ) -> dict[str, float]:
        group = self.config.rollout.group_size
        lengths, ended = sequences.lengths.float(), sequences.ended(self.tokenizer.eos_token_id)
        distinct = [len(set(texts[i : i + group])) / group for i in range(0, len(texts), group)]
        values = group_metrics(rewards, group) | {
            "advantage/mean_abs": advantages.abs().mean(),
            "rollout/distinct": torch.tensor(distinct).mean(),
            "response_length/mean": lengths.mean(),
            "response_length/max": lengths.max(),
            "response_length/clip_ratio": ((lengths >= self.limit) & ~ended).float().mean(),
            "response_length/limit": torch.tensor(float(self.limit)),
            "response_length/teacher": torch.tensor(self.lengths["mean"]),
            "response_length/teacher_p99": torch.tensor(self.lengths["p99"]),
        }
        answered = [self.problems[index] for index in indices for _ in range(group)]
        quality = qualities(self.task, answered, texts, ended.tolist())
        return {name: value.item() for name, value in values.items()} | quality_metrics(quality, rewards, group)

    def _steps_of(self, settings: Adversarial) -> int:
        return number_of_steps(len(self.problems), self.config.rollout.prompts, settings.epochs, settings.max_steps)

    def _indices_of(self, step: int) -> list[int]:
        prompts, seed = self.config.rollout.prompts, self.stage.seed or 0
        return rows_of_step(len(self.problems), prompts, step, purpose=self.name, seed=seed)

    def _generator(self, purpose: str, step: int) -> torch.Generator:
        return generator(f"{self.name} {purpose}", self.stage.seed or 0, step)


# A buffer of the model counts the optimizer steps of its weights. A copy of the weights keeps the count at the time of
# copying, so a difference between the counts shows that the copy is stale.
_BUFFER = "optimizer_steps"


def count_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make a buffer of `model` count the steps of `optimizer`, starting at 0."""
    model.register_buffer(_BUFFER, torch.tensor(0), persistent=False)  # saved models do not have it

    def add_one(*_: object) -> None:
        model.get_buffer(_BUFFER).add_(1)

    optimizer.register_step_post_hook(add_one)


def steps_taken(model: nn.Module) -> int:
    """Return the number of optimizer steps that `count_steps` has counted for the weights of `model`."""
    return int(model.get_buffer(_BUFFER))
