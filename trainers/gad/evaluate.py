"""Stages `evaluate_start` and `evaluate` of study `gad`: measure the student on the test split.

If `evaluate.checkpoints` is above 1, the values of the protocol `sampled` are means over that many of the last students
of the stage `gad`. The samples quote the last student.
"""

from functools import partial

import pandas as pd

from trainers.gad.config import GadConfig
from trainers.gad.data import teacher_lengths
from trainers.gad.measure import measure, rule_of
from trainers.gad.students import CRITIC, STUDENT, latest_critic, latest_student, measured_models
from trainers.parallel import join
from trainers.policy.evaluation import Quotes, save_evaluation
from trainers.policy.measure import COLUMNS, SUBSET
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.value_model import ValueModel
from trainers.running.stage import Stage
from trainers.running.weights import MeasuredModels
from trainers.tasks.interface import clusters_of, read_problems

LATEST_FIRST = ("gad", "warmup", "seqkd", "base")
RANKS = join  # several devices: a process for each, with all of the student and a part of the critic


def run(stage: Stage) -> None:
    """Measure the latest student among the inputs; add the results of the input `start` as protocols `start_...`."""
    config: GadConfig = stage.config
    placement = Placement.of(stage.devices, config.precision, stage.ranks)
    earlier = [name for name in LATEST_FIRST if name in stage.inputs]
    folder, critic = latest_student(stage, earlier), latest_critic(stage, earlier)
    rows = read_problems(stage.inputs["data"] / f"{SUBSET}.jsonl")
    tokenizer, micro_batch = load_tokenizer(folder), stage.micro_batch(config.evaluate.batch_size)
    models = [(folder, critic), *((each / STUDENT, each / CRITIC) for each in measured_models(stage))]
    quotes = Quotes([{"item": row.id, "prompt": row.chat, "reference": row.answer} for row in rows], outcome="rule")
    frames, measured = [], MeasuredModels(config, {"data": stage.inputs["data"]})
    rule = rule_of(stage)
    for number, (folder, critic) in enumerate(models):
        student = load_policy(folder, placement.device, config.precision)
        measured.add(student.state_dict(), folder)
        scorer = None
        if critic is not None:
            scorer = stage.ranks.build(partial(ValueModel.load, critic, placement, sees_token=True))
            if stage.ranks.rank == 0:  # only this rank has the weights
                measured.add(scorer.state_dict(), critic)
            scorer = placement.shard(scorer)
        # Each student has its own sampling seed, so that averaging over students reduces the sampling noise.
        settings = config.evaluate.model_copy(update={"seed": config.evaluate.seed + number})
        frame = measure(
            student,
            tokenizer,
            rows,
            config=config.model_copy(update={"evaluate": settings}),
            task=rule,
            placement=placement,
            lengths=teacher_lengths(stage.inputs["data"]),
            critic=scorer,
            micro_batch=micro_batch,
            greedily=number == 0,
            keep=quotes.keep if number == 0 else None,
        )
        frames.append(frame)
    frame = pd.concat(frames).groupby(COLUMNS[:-1], sort=False, as_index=False)["value"].mean()
    save_evaluation(stage, frame, clusters_of(rows), quotes, measured, before="start")
