"""Stage `evaluate` of study `demonstrations`: accuracy after 1 to S chosen demonstrations.

With k shots, the demonstrations are a selector's first k choices. Selectors are compared on the validation split; only
the final results are from the test split. docs/studies/metrics/demonstrations.md defines the metrics.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ablation.contract.atomic import write_json
from ablation.contract.samples import MOST_ITEMS
from trainers.demonstrations.candidates import similarities
from trainers.demonstrations.in_context import (
    InContextModel,
    Resumable,
    Scores,
    load_in_context_model,
    score_pointers,
)
from trainers.demonstrations.prepared import Prepared, load_prepared
from trainers.demonstrations.training import load_selector, trained_on
from trainers.parallel import join
from trainers.running.samples import Row, save_samples, some_items
from trainers.running.stage import Stage

PROTOCOL, CHOICES = "selected", "choices.json"
RANKS = join  # several devices: a process for each, with some of the batches


def run(stage: Stage) -> None:
    """Log `<protocol>/<shots>/<metric>`, and write one row per test query and number of shots to `items.parquet`."""
    config = stage.config
    prepared, model = load_prepared(stage.inputs["embed"]), load_in_context_model(stage)
    work = Resumable(stage)

    def measure(pointers: Tensor, split: str, name: str) -> Scores:
        return score_pointers(model, prepared, prepared.numbers(split), pointers, work=work, name=name)

    selectors: list[str] = [reward.mode for reward in trained_on(config)] or [""]  # a baseline has no mode
    shots = range(1, config.shots + 1)
    validation = {}
    for mode in selectors:
        pointers = select(stage, prepared, mode, "validation")
        validation[mode] = {k: measure(pointers[:, :k], "validation", f"validation {mode} {k}") for k in shots}
    accuracy = {mode: {k: scores.accuracy.mean().item() for k, scores in by.items()} for mode, by in validation.items()}
    chosen = {k: max(selectors, key=lambda mode: accuracy[mode][k]) for k in shots}  # the first of equals
    if len(selectors) > 1:
        write_json(stage.out / CHOICES, {"chosen": chosen, "validation": accuracy})
        stage.log.info("best reward mode on the validation split for each number of shots: %s", chosen)
    _report(stage, {k: validation[chosen[k]][k] for k in shots}, "validation")
    choices = {mode: select(stage, prepared, mode, "test") for mode in dict.fromkeys(chosen.values())}
    test = {k: measure(choices[chosen[k]][:, :k], "test", f"test {k}") for k in shots}
    _report(stage, test, "test")
    _save_items(stage, prepared, test, model.clusters)
    save_samples(stage, _samples(model, prepared, test, {k: choices[chosen[k]][:, :k] for k in shots}))


def _samples(
    model: InContextModel, prepared: Prepared, scores: dict[int, Scores], choices: dict[int, Tensor]
) -> Iterator[Row]:
    numbers = prepared.numbers("test")
    names = [prepared.names[number] for number in prepared.splits["test"]]
    kept = some_items(names, MOST_ITEMS // 2)  # every query occurs in every subset
    queries = prepared.query_items[numbers][kept].tolist()
    questions, references = [question for question, _ in model.in_words(queries)], model.right_answers(queries)
    pools = prepared.pools[numbers[kept]]
    chosen = {shots: prepared.demonstration_items[pools.gather(1, choices[shots][kept])] for shots in scores}
    items = torch.cat([rows.flatten() for rows in chosen.values()]).unique().tolist()
    words = [f"{question} → {answer}" for question, answer in model.in_words(items)]
    shown = dict(zip(items, words, strict=True))
    for shots, result in scores.items():
        accuracy, demonstrations = result.accuracy[kept].tolist(), chosen[shots].tolist()
        for row, place in enumerate(kept):
            lines = [f"{number}. {shown[item]}" for number, item in enumerate(demonstrations[row], 1)]
            yield {
                "item": names[place],
                "subset": str(shots),
                "protocol": PROTOCOL,
                "prompt": questions[row],
                "demonstrations": "\n".join(lines),
                "response": result.answers[place],
                "reference": references[row],
                "accuracy": accuracy[row],
            }


def select(stage: Stage, prepared: Prepared, mode: str, split: str) -> Tensor:
    """Return the choices (N, S) for the N queries of a split. mode: reward mode of the selector, if it is trained."""
    config, numbers = stage.config, prepared.numbers(split)
    if config.selector.kind == "random":
        generator = torch.Generator().manual_seed(2 * (stage.seed or 0) + (split == "test"))
        return torch.rand(len(numbers), prepared.candidates, generator=generator).argsort(1)[:, : config.shots]
    if config.selector.kind == "nearest":
        return similarities(*prepared.of(numbers)).topk(config.shots, dim=1).indices
    device = stage.devices[0]
    selector = load_selector(stage.inputs["grpo"], mode, config.selector, prepared.d_embedding, device)
    query, candidates = prepared.scaled(numbers)
    return selector.select(query.to(device), candidates.to(device), config.shots).cpu()


def _report(stage: Stage, scores: dict[int, Scores], split: str) -> None:
    protocol = PROTOCOL if split == "test" else split
    figures: dict[str, float] = {}
    for name in ("accuracy", "acc_score", "gold_logp"):
        values = {str(shots): getattr(result, name).mean().item() for shots, result in scores.items()}
        values["mean"] = sum(values.values()) / len(values)
        figures |= {f"{protocol}/{subset}/{name}": value for subset, value in values.items()}
    stage.log_metrics(0, figures)


def _save_items(stage: Stage, prepared: Prepared, scores: dict[int, Scores], clusters: Sequence[str] | None) -> None:
    """Write the test queries' values by number of shots to `items.parquet`.

    clusters: cluster of each item of the in-context model; None: each query is a cluster, which holds its values for
    all numbers of shots.
    """
    queries = [prepared.names[number] for number in prepared.splits["test"]]
    items = prepared.query_items[prepared.numbers("test")].tolist()
    rows = [
        (query, str(shots), PROTOCOL, name, value)
        for shots, result in scores.items()
        for name in ("accuracy", "acc_score")
        for query, value in zip(queries, getattr(result, name).tolist(), strict=True)
    ]
    named = [clusters[item] for item in items] if clusters else queries
    stage.save_items(rows, dict(zip(queries, named, strict=True)))
