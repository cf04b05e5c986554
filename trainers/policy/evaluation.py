"""Output of an evaluation: `items.parquet`, `samples.parquet` with a few responses per prompt, and mean metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pandas as pd

from trainers.policy.measure import COLUMNS, SUBSET
from trainers.policy.systematic_sampling import Distinct
from trainers.running.samples import Row, save_samples, some_items
from trainers.running.stage import Stage
from trainers.running.weights import MeasuredModels


def save_evaluation(
    stage: Stage,
    rows: pd.DataFrame,
    clusters: Mapping[str, str] | None,
    quotes: "Quotes",
    measured: MeasuredModels,
    *,
    before: str,
) -> None:
    """Write items, samples and the digest of the measured models; log the mean of each value.

    before: name of the input with the evaluation of the model before training; if the stage has it, its rows are added
    as protocols `<before>_...`.
    """
    if before in stage.inputs:
        earlier = pd.read_parquet(stage.inputs[before] / "items.parquet")[COLUMNS]
        rows = pd.concat([rows, earlier.assign(protocol=f"{before}_" + earlier["protocol"].astype(str))])
    measured.write(stage.out)
    stage.save_items(rows, clusters)
    save_samples(stage, quotes.rows)
    means = rows.groupby(["protocol", "name"])["value"].mean()
    for subset in (SUBSET, "mean"):
        stage.log_metrics(0, {f"{protocol}/{subset}/{name}": value for (protocol, name), value in means.items()})


@dataclass
class Quotes:
    """Collects the rows of `samples.parquet` while the protocols are measured.

    prompts: `item`, `prompt` and `reference` of each prompt, in the order of the evaluation. outcome: name of the value
    that distinguishes good responses from bad ones; it may be absent.
    """

    prompts: Sequence[Row]
    outcome: str
    rows: list[Row] = field(default_factory=list)

    def keep(
        self, protocol: str, distinct: Distinct, texts: Sequence[str], values: Mapping[str, Sequence[float]]
    ) -> None:
        """Keep the most common response to each prompt, and a second one, if possible with another outcome."""
        shares = distinct.shares.tolist()
        prompts = distinct.prompts.tolist()
        outcomes = values.get(self.outcome)
        quoted = frozenset(some_items([str(row["item"]) for row in self.prompts]))
        for prompt, group in groupby(range(len(prompts)), key=prompts.__getitem__):
            if prompt not in quoted:
                continue
            for number in telling(list(group), shares, outcomes):
                judged = {name: column[number] for name, column in values.items()}
                share = {"share of the samples": shares[number]} if shares[number] < 1 else {}
                response = {"subset": SUBSET, "protocol": protocol, "response": texts[number]}
                self.rows.append({**self.prompts[prompt], **response, **judged, **share})


def telling(responses: Sequence[int], shares: Sequence[float], outcomes: Sequence[float] | None) -> list[int]:
    """Return the numbers of one or two responses: the one with the largest share and, if there are others, a second.

    The second has the largest share among the responses with another outcome; if there are none, among all others.
    """
    first, *others = sorted(responses, key=lambda number: -shares[number])
    different = [number for number in others if outcomes is not None and outcomes[number] != outcomes[first]]
    return [first, *(different or others)[:1]]
