"""Output of an evaluation: rows of items, a few responses to each prompt for `samples.parquet`, means."""

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
    """Write rows, samples and the digest of what was measured; log the means.

    before: the input that holds the evaluation of the model before its training; if there is one, its rows are kept
    too, as protocols `<before>_...`.
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
    """Rows of `samples.parquet`, taken while protocol after protocol is measured.

    asked: of each prompt, in the order of the evaluation, `item`, `prompt` and `reference`. outcome: the value by which
    two responses to a prompt differ most tellingly, if there is such a value.
    """

    asked: Sequence[Row]
    outcome: str
    rows: list[Row] = field(default_factory=list)

    def keep(
        self, protocol: str, distinct: Distinct, texts: Sequence[str], values: Mapping[str, Sequence[float]]
    ) -> None:
        """Keep the most common response to each prompt, and the most common one with another outcome, if any."""
        shares = distinct.shares.tolist()
        prompts = distinct.prompts.tolist()
        outcomes = values.get(self.outcome)
        quoted = frozenset(some_items([str(row["item"]) for row in self.asked]))
        for prompt, group in groupby(range(len(prompts)), key=prompts.__getitem__):
            if prompt not in quoted:
                continue
            for place in telling(list(group), shares, outcomes):
                judged = {name: column[place] for name, column in values.items()}
                share = {"share of the samples": shares[place]} if shares[place] < 1 else {}
                place_of = {"subset": SUBSET, "protocol": protocol, "response": texts[place]}
                self.rows.append({**self.asked[prompt], **place_of, **judged, **share})


def telling(places: Sequence[int], shares: Sequence[float], outcomes: Sequence[float] | None) -> list[int]:
    """Return one or two of the places: of the largest share, and of the largest among those with another outcome.

    Where all have one outcome, or none is known, the second is that of the second largest share.
    """
    first, *others = sorted(places, key=lambda place: -shares[place])
    apart = [place for place in others if outcomes is not None and outcomes[place] != outcomes[first]]
    return [first, *(apart or others)[:1]]
