"""Stages `evaluate_warm` and `evaluate`: the test split, read once per run; one row per problem in items.parquet.

Where `evaluate.checkpoints` asks for more policies than the last one, the values of `sampled` are their means. The
samples quote the last policy.
"""

from pathlib import Path

import pandas as pd

from trainers.parallel import join
from trainers.policy.config import PolicyConfig
from trainers.policy.experience import Sampler
from trainers.policy.measure import Measured, average, measure
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.quotes import Quotes
from trainers.policy.rewards import load_reward_model
from trainers.policy.sources import KEPT, earlier_models, load_task, policy_folder
from trainers.samples import save_samples
from trainers.stage import Stage
from trainers.tasks.interface import Problem, clusters_of, read_problems
from trainers.weights import MeasuredModels

SUBSET = "test"
COLUMNS = ["item", "subset", "protocol", "name", "value"]
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
    memory = stage.micro_batch(config.evaluate.batch_size)
    others = {name: path for name, path in stage.inputs.items() if name not in ("policy", "warm", "model")}
    earlier = earlier_models(stage.inputs["policy"] / KEPT, config.evaluate) if "warm" in stage.inputs else []
    tokenizer, task = load_tokenizer(folder), load_task(stage)
    reward_model = load_reward_model(stage, config.reward, placement)
    asked = [{"item": each.id, "prompt": each.prompt, "reference": each.answer} for each in problems]
    quotes = Quotes(asked, SUBSET, outcome="accuracy")
    found, measured = [], MeasuredModels(config, others)
    for number, each in enumerate([folder, *earlier]):
        sampler = Sampler(
            model=load_policy(each, placement.device, config.precision),
            tokenizer=tokenizer,
            task=task,
            sampling=config.sampling,
            placement=placement,
            reward_model=reward_model,
        )
        measured.add(sampler.model.state_dict(), each)
        # Numbers of its own for each policy: what sampling adds to a problem's value shall not be the same in all.
        settings = config.evaluate.model_copy(update={"seed": config.evaluate.seed + number})
        last = number == 0
        keep = quotes.keep if last else None
        found.append(measure(sampler, problems, settings, memory, greedy=last, keep=keep))
    results = found[0] | {"sampled": average([each["sampled"] for each in found])}
    rows = pd.concat([_rows(problems, protocol, result) for protocol, result in results.items()])
    if "warm" in stage.inputs:
        rows = pd.concat([rows, _warm_rows(stage.inputs["warm"])])
    measured.write(stage.out)
    stage.save_items(rows, clusters_of(problems))
    save_samples(stage, quotes.rows)
    means = rows.groupby(["protocol", "name"])["value"].mean()
    for subset in (SUBSET, "mean"):
        stage.log_metrics(0, {f"{protocol}/{subset}/{name}": value for (protocol, name), value in means.items()})


def _rows(problems: list[Problem], protocol: str, result: Measured) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (problem.id, SUBSET, protocol, name, column[i])
            for name, column in result.values.items()
            for i, problem in enumerate(problems)
        ],
        columns=COLUMNS,
    )


def _warm_rows(folder: Path) -> pd.DataFrame:
    rows = pd.read_parquet(folder / "items.parquet")[COLUMNS]
    return rows.assign(protocol="warm_" + rows["protocol"].astype(str))
