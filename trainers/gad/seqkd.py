"""Stage `seqkd`: supervised training on the teacher's responses (sequence-level distillation, arXiv 1606.07947).

Metrics are defined in docs/metrics-gad.md.
"""

from functools import partial

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.gad.config import GadConfig
from trainers.gad.data import number_of_steps, rows_of_step, teacher_lengths, training_rows
from trainers.gad.look import look_at
from trainers.gad.rows import read_rows
from trainers.gad.students import keep_models, latest_student, save_models
from trainers.micro_batch import OutOfMemory
from trainers.parallel.join import join
from trainers.policy.models import Placement, load_learner, load_tokenizer
from trainers.policy.supervised import Examples, Schedule, constant, train_on_responses
from trainers.policy.text import message_tokens, response_tokens
from trainers.stage import Stage, with_run_seed

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train the base model on the teacher's responses; once per seed, for all variants."""
    config: GadConfig = stage.config
    settings = config.seqkd
    if not settings.enabled:
        stage.log.info("seqkd.enabled is false: nothing is trained, the next stage starts from the base model")
        return
    placement = Placement.of(stage.devices, config.precision, stage.ranks, stage.parts.get("adapters"))
    folder = latest_student(stage, ["base"])
    tokenizer = load_tokenizer(folder)
    model, _ = load_learner(folder, placement, settings.memory, stage.seed)
    rows = training_rows(stage.inputs["data"], "seqkd")
    _look(stage, model, tokenizer, placement, 0)  # a resumed stage looks again: the same responses of the same model

    def keep(step: int) -> None:
        if config.keep_checkpoints and step % config.keep_checkpoints == 0:
            keep_models(stage, step, model, tokenizer)

    steps = number_of_steps(len(rows), settings.batch_size, settings.epochs, settings.max_steps)
    examples = Examples.of(
        tokenizer,
        [message_tokens(tokenizer, row.content) for row in rows],
        [response_tokens(tokenizer, row.teacher_response) for row in rows],
    )
    seed = with_run_seed(settings.seed, stage.seed)
    chosen = partial(rows_of_step, len(rows), settings.batch_size, purpose="seqkd", seed=seed)
    train_on_responses(
        stage,
        model,
        examples,
        Schedule(chosen, steps, settings.lr, constant, settings.micro_batch, stage.parts["optimizer"]),
        metric="seqkd/loss",
        placement=placement,
        checkpoint_every=config.checkpoint_every,
        after=keep,
    )
    save_models(stage.out, model, tokenizer, ranks=stage.ranks)
    _look(stage, model, tokenizer, placement, steps)


def _look(
    stage: Stage, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, placement: Placement, step: int
) -> None:
    """Sample responses to a few development prompts into `responses.md`, and log how near they are to the teacher's.

    Nothing is learnt from them, so samples that do not fit into memory cost a line in the log and not the stage.
    """
    settings = stage.config.seqkd
    if settings.samples == 0:
        return
    try:
        found = look_at(
            stage,
            model,
            tokenizer,
            read_rows(stage.inputs["data"] / "dev.jsonl")[: settings.sample_prompts],
            settings=settings,
            placement=placement,
            limit=round(1.5 * teacher_lengths(stage.inputs["data"], "seqkd")["p99"]),
            step=step,
        )
    except OutOfMemory as error:
        if stage.ranks.size > 1:
            raise  # the others wait for this one
        stage.log.warning("no responses to look at, step %d: %s", step, error)
        return
    stage.log_metrics(step, {f"seqkd/sampled_{name}": value for name, value in found.items()})
