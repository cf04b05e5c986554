"""Stages `evaluate_warm` and `evaluate`: the test split, read once per run; one row per problem in items.parquet.

Where `evaluate.checkpoints` asks for more policies than the last one, the values of `sampled` are their means. The
samples quote the last policy.
"""

import pandas as pd

from trainers.parallel import join
from trainers.policy.classifier import load_reward_model
from trainers.policy.config import PolicyConfig
from trainers.policy.evaluation import Quotes, save_evaluation
from trainers.policy.measure import average, frame_of, measure
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.responses import Sampler
from trainers.policy.sources import KEPT, earlier_models, load_task, policy_folder
from trainers.running.stage import Stage
from trainers.running.weights import MeasuredModels
from trainers.tasks.interface import clusters_of, read_problems

RANKS = join  # several devices: a process for each, which samples for its prompts with all of the policy


def run(stage: Stage) -> None:
    """Measure the policy of the input `policy`.

    With an input `warm`, the measured warm start, this is a policy that was trained from it: its last steps are
    measured, and the rows of the warm start are kept too, as `warm_...`.
    """
    config: PolicyConfig = stage.config
    placement = Placement.of(stage.devices, config.precision, stage.ranks)
    folder = policy_folder(stage, "policy")
    problems = read_problems(stage.inputs["task_data"] / "test.jsonl")
    micro_batch = stage.micro_batch(config.evaluate.batch_size)
    others = {name: path for name, path in stage.inputs.items() if name not in ("policy", "warm", "model")}
    earlier = (
        earlier_models(stage.inputs["policy"] / KEPT, config.evaluate.checkpoints) if "warm" in stage.inputs else []
    )
    tokenizer, task = load_tokenizer(folder), load_task(stage)
    reward_model = load_reward_model(stage, config.reward, placement)
    asked = [{"item": each.id, "prompt": each.prompt, "reference": each.answer} for each in problems]
    quotes = Quotes(asked, outcome="accuracy")
    results_by_policy, measured = [], MeasuredModels(config, others)
    for number, each in enumerate([folder, *earlier]):
        sampler = Sampler(
            model=load_policy(each, placement.device, config.precision),
            tokenizer=tokenizer,
            task=task,
            sampling=config.sampling,
            placement=placement,
        )
        measured.add(sampler.model.state_dict(), each)
        # Numbers of its own for each policy: what sampling adds to a problem's value shall not be the same in all.
        settings = config.evaluate.model_copy(update={"seed": config.evaluate.seed + number})
        last = number == 0
        keep = quotes.keep if last else None
        results_by_policy.append(
            measure(sampler, problems, settings, micro_batch, reward_model, greedy=last, keep=keep)
        )
    results = results_by_policy[0] | {"sampled": average([each["sampled"] for each in results_by_policy])}
    items = [problem.id for problem in problems]
    rows = pd.concat([frame_of(protocol, items, values) for protocol, values in results.items()])
    save_evaluation(stage, rows, clusters_of(problems), quotes, measured, before="warm")
