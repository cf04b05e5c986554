"""Stage `seqkd`: supervised training on the teacher's responses (sequence-level distillation, arXiv 1606.07947)."""

from functools import partial

from trainers.gad.config import GadConfig
from trainers.gad.order import number_of_steps, rows_of_step
from trainers.gad.rows import read_rows
from trainers.gad.students import STUDENT, latest_student
from trainers.policy.models import load_policy, load_tokenizer, save_policy
from trainers.policy.placement import Placement
from trainers.policy.supervised import constant, train_on_responses
from trainers.policy.text import message_tokens, response_tokens
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Train the base model on the teacher's responses; once for all variants and seeds."""
    config: GadConfig = stage.config
    settings = config.seqkd
    if not settings.enabled:
        stage.log.info("seqkd.enabled is false: nothing is trained, the next stage starts from the base model")
        return
    placement = Placement.of(stage.devices, config.precision)
    folder = latest_student(stage, ["base"])
    tokenizer = load_tokenizer(folder)
    model = load_policy(folder, placement.policy, config.precision, trainable=True)
    rows = read_rows(stage.inputs["data"] / "train.jsonl")
    train_on_responses(
        stage,
        model,
        tokenizer,
        [message_tokens(tokenizer, row.content) for row in rows],
        [response_tokens(tokenizer, row.teacher_response) for row in rows],
        rows=partial(_rows, len(rows), settings.batch_size, settings.seed),
        steps=number_of_steps(len(rows), settings.batch_size, settings.epochs, settings.max_steps),
        lr=settings.lr,
        rate=constant,
        metric="seqkd/loss",
        placement=placement,
        micro_batch=settings.micro_batch,
        checkpoint_every=config.checkpoint_every,
    )
    save_policy(stage.out / STUDENT, model, tokenizer)


def _rows(rows: int, batch_size: int, seed: int, step: int) -> list[int]:
    return rows_of_step(rows, batch_size, step, purpose="seqkd", seed=seed)
