"""Stage `seqkd` of study `gad`: supervised training on the teacher's responses.

This is sequence-level distillation (arXiv 1606.07947). docs/studies/metrics/gad.md defines the metrics.
"""

from functools import partial

from trainers.gad.config import GadConfig
from trainers.gad.data import number_of_steps, rows_of_step
from trainers.gad.students import keep_models, latest_student, save_models
from trainers.parallel import join
from trainers.policy.models import Placement, load_policy_and_reference, load_tokenizer
from trainers.policy.supervised import Examples, Schedule, constant, train_on_responses
from trainers.running.stage import Stage, run_seed
from trainers.tasks.interface import read_problems

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train the base model on the teacher's responses and save it as the student, if `seqkd.enabled` is true."""
    config: GadConfig = stage.config
    settings = config.seqkd
    if not settings.enabled:
        stage.log.info("seqkd.enabled is false, so nothing is trained and the next stage starts from the base model")
        return
    placement = Placement.of(stage.devices, config.precision, stage.ranks, stage.parts.get("adapters"))
    folder = latest_student(stage, ["base"])
    tokenizer = load_tokenizer(folder)
    model, _ = load_policy_and_reference(folder, placement, settings.memory, stage.seed)
    rows = read_problems(stage.inputs["data"] / "train.jsonl")

    def keep(step: int) -> None:
        if config.keep_checkpoints and step % config.keep_checkpoints == 0:
            keep_models(stage, step, model, tokenizer)

    steps = number_of_steps(len(rows), settings.batch_size, settings.epochs, settings.max_steps)
    examples = Examples.of(tokenizer, rows, [row.answer for row in rows])
    seed = run_seed(stage.seed)
    chosen = partial(rows_of_step, len(rows), settings.batch_size, purpose="seqkd", seed=seed)
    train_on_responses(
        stage,
        model,
        examples,
        Schedule(chosen, steps, settings.lr, constant, settings.micro_batch),
        metric="seqkd/loss",
        placement=placement,
        checkpoint_every=config.checkpoint_every,
        after=keep,
    )
    save_models(stage.out, model, tokenizer, ranks=stage.ranks)
