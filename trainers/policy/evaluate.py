"""Stages `evaluate_warm` and `evaluate`: measure a policy on the test split; items.parquet has a row per problem.

If `evaluate.checkpoints` is above 1, `evaluate` measures policies of earlier steps too, and the values of the protocol
`sampled` are means over all policies. samples.parquet has responses of the last policy only.
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
    """Measure the policy that the input stage `policy` trained.

    The input `warm`, if the stage has it, is the evaluation of the warm start from which the policy was trained. Then
    the last steps of the training are measured too, and the rows of the warm start are added as protocols `warm_...`.
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
    prompts = [{"item": problem.id, "prompt": problem.prompt, "reference": problem.answer} for problem in problems]
    quotes = Quotes(prompts, outcome="accuracy")
    results_by_policy, measured = [], MeasuredModels(config, others)
    for number, policy in enumerate([folder, *earlier]):
        sampler = Sampler(
            model=load_policy(policy, placement.device, config.precision),
            tokenizer=tokenizer,
            task=task,
            sampling=config.sampling,
            placement=placement,
        )
        measured.add(sampler.model.state_dict(), policy)
        # Each policy has its own sampling seed, so that averaging over policies reduces the sampling noise.
        settings = config.evaluate.model_copy(update={"seed": config.evaluate.seed + number})
        last = number == 0
        keep = quotes.keep if last else None
        results_by_policy.append(
            measure(sampler, problems, settings, micro_batch, reward_model, greedy=last, keep=keep)
        )
    results = results_by_policy[0] | {"sampled": average([values["sampled"] for values in results_by_policy])}
    items = [problem.id for problem in problems]
    rows = pd.concat([frame_of(protocol, items, values) for protocol, values in results.items()])
    save_evaluation(stage, rows, clusters_of(problems), quotes, measured, before="warm")
