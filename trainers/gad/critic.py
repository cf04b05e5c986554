"""The critic: its scores of responses, and its updates on pairs of a teacher's and a student's response."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from trainers.gad.config import Critic as Settings
from trainers.gad.config import GadConfig, Hinge
from trainers.objectives.discriminators import PairDiagnostics, Pooling, Scores, pair_diagnostics, pool
from trainers.objectives.policy import StepMetrics, Sum
from trainers.policy.batch import Sequences
from trainers.policy.config import UpdateSettings
from trainers.policy.learner import Learner, minibatches
from trainers.policy.models import Placement, refuse_other_tokenizer
from trainers.policy.value_model import ValueModel, is_language_model
from trainers.running.micro_batch import MicroBatch

Loss = Callable[[Scores, Scores], tuple[Tensor, PairDiagnostics]]


def build_loss(config: GadConfig, discriminator: Loss) -> Loss:
    """Return the function `discriminator`, bound to the settings under `discriminator` of the configuration."""
    return partial(discriminator, **config.discriminator.model_dump(exclude={"kind"}))


def difference_limit(config: GadConfig) -> float:
    """Return the score difference (teacher - student) above which the critic is too confident.

    It is 1 (section 19 of the GAD notes), but max_margin for d-v2 (5 in section 12.4), and 5 for d-v1.
    """
    settings = config.discriminator
    return getattr(settings, "max_margin", 5.0) if isinstance(settings, Hinge) else 1.0


def new_critic(
    settings: Settings, student: Path, reward_model: Path | None, placement: Placement, generator: torch.Generator
) -> ValueModel:
    """Return a new critic: a copy of a classifier, or a new head on the body of the student or of a language model.

    student: folder of the student. reward_model: folder of the classifier or language model; None for init `student`.
    """
    if settings.init == "reward_model":
        assert reward_model is not None  # `GadConfig` checks it
        if not is_language_model(reward_model):
            return ValueModel.from_reward_model(reward_model, placement, student)
        refuse_other_tokenizer(reward_model, student)
        student = reward_model
    critic = ValueModel.from_causal(student, placement, sees_token=True)
    weight = torch.randn(critic.head.weight.shape, generator=generator) * settings.head_std
    with torch.no_grad():
        critic.head.weight.copy_(weight)
    return critic


@torch.no_grad()
def score(critic: ValueModel, sequences: Sequences, micro_batch: MicroBatch, pooling: Pooling) -> Scores:
    """Return the scores of N responses; equal responses to a prompt are scored once, so that their scores are equal.

    Otherwise they could differ by rounding, which normalised advantages would amplify.
    """
    everything = torch.cat([sequences.prompt_ids, sequences.completion_ids, sequences.completion_mask], 1)
    _, inverse = everything.unique(dim=0, return_inverse=True)
    first = torch.full((int(inverse.max()) + 1,), len(inverse), device=inverse.device)
    first.scatter_reduce_(0, inverse, torch.arange(len(inverse), device=inverse.device), "amin")
    batches = micro_batch.run(first, lambda rows: _pooled(critic, sequences.select(rows), pooling))
    return Scores(*(torch.cat(values)[inverse] for values in zip(*batches, strict=True)))


def teacher_scores_of(
    teacher: Sequences, scores_by_prompt: Scores, student: Sequences, student_scores: Scores, prompts: Tensor
) -> Scores:
    """Return the scores (N,) of the teacher's responses to the prompts of the student's N responses.

    teacher: responses to B prompts, with scores `scores_by_prompt` (B,). prompts: (N,), the index of each student
    response's prompt, below B. If both responses of a pair are equal, the teacher's gets the student's score, because
    scores from different batches may differ by rounding.
    """
    width = min(teacher.completion_mask.shape[1], student.completion_mask.shape[1])
    student_ids, teacher_ids = student.completion_ids[:, :width], teacher.completion_ids[prompts, :width]
    same_tokens = ((student_ids == teacher_ids) | (student.completion_mask[:, :width] == 0)).all(1)
    same = same_tokens & (teacher.lengths[prompts] == student.lengths)
    both = zip(student_scores, scores_by_prompt, strict=True)
    return Scores(*(torch.where(same, of_student, of_teacher[prompts]) for of_student, of_teacher in both))


def compare(loss: Loss, teacher: Scores, student: Scores) -> dict[str, float]:
    """Return the means of the loss and of the diagnostics over a step's N pairs, before the critic's update."""
    losses, diagnostics = loss(teacher, student)
    values = {"critic/d_loss": losses, **pair_diagnostics(teacher, student), **diagnostics}
    return {name: value.mean().item() for name, value in values.items()}


def same_text(teacher_texts: Sequence[str], texts: Sequence[str], teacher: Scores, student: Scores) -> dict[str, float]:
    """Return the mean absolute score difference of pairs with equal texts as a metric; {} if there are no such pairs.

    The difference is 0 unless the responses differ in tokens that the text does not show.
    """
    same = torch.tensor([one == other for one, other in zip(teacher_texts, texts, strict=True)])
    difference = (teacher.pooled - student.pooled).abs().cpu()[same]
    return {"critic/same_text_diff": difference.mean().item()} if len(difference) else {}


def update_critic(
    learner: Learner,
    loss: Loss,
    teacher: Sequences,
    student: Sequences,
    *,
    update: UpdateSettings,
    pooling: Pooling,
    generator: torch.Generator,
) -> dict[str, float]:
    """Update the critic on B teacher and B * G student responses, in minibatches of prompts; return the gradient norm.

    The norm is measured before clipping and averaged over minibatches. The losses of a micro-batch are divided
    by the number of pairs in the minibatch, so that accumulation does not change the gradient.
    """
    step_metrics, group = StepMetrics(), len(student) // len(teacher)
    with learner.training():
        for prompts in minibatches(len(teacher), update, generator):
            pairs = len(prompts) * group

            def backward(part: Tensor, pairs: int = pairs) -> None:
                part_losses, _ = loss(*pair_scores(learner.model, teacher, student, part, group, pooling=pooling))
                learner.micro_batch.backward(part_losses.sum() / pairs)

            _, norm = learner.step(prompts, backward)
            step_metrics.close_minibatch({"critic/grad_norm": Sum(norm)})
    return step_metrics.compute()


def pair_scores(
    critic: nn.Module, teacher: Sequences, student: Sequences, prompts: Tensor, group: int, *, pooling: Pooling
) -> tuple[Scores, Scores]:
    """Return teacher's and student's scores of all pairs of some prompts; the teacher's are repeated for each pair."""
    responses = (prompts[:, None] * group + torch.arange(group)).flatten()
    teacher_scores = _pooled(critic, teacher.select(prompts), pooling)
    repeated = Scores(*(values.repeat_interleave(group, 0) for values in teacher_scores))
    return repeated, _pooled(critic, student.select(responses), pooling)


def _pooled(critic: nn.Module, sequences: Sequences, pooling: Pooling) -> Scores:
    return pool(critic(sequences), sequences.completion_mask, pooling)
