"""What an evaluation quotes of the responses that it judged: a few to each prompt, for `samples.parquet`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from trainers.policy.spread import Distinct
from trainers.samples import Row, some_items


@dataclass
class Quotes:
    """Rows of `samples.parquet`, taken while protocol after protocol is measured.

    asked: of each prompt, in the order of the evaluation, `item`, `prompt` and `reference`. outcome: the value by which
    two responses to a prompt differ most tellingly, where there is such a value.
    """

    asked: Sequence[Row]
    subset: str
    outcome: str
    rows: list[Row] = field(default_factory=list)

    def keep(self, protocol: str, found: Distinct, texts: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
        """Take the most common response to each prompt, and the most common one with another outcome, if any."""
        shares = found.shares.tolist()
        prompts = found.prompts.tolist()
        outcomes = values.get(self.outcome)
        quoted = frozenset(some_items([str(row["item"]) for row in self.asked]))
        for prompt, group in groupby(range(len(prompts)), key=prompts.__getitem__):
            if prompt not in quoted:
                continue
            for place in telling(list(group), shares, outcomes):
                judged = {name: column[place] for name, column in values.items()}
                share = {"share of the samples": shares[place]} if shares[place] < 1 else {}
                place_of = {"subset": self.subset, "protocol": protocol, "response": texts[place]}
                self.rows.append({**self.asked[prompt], **place_of, **judged, **share})


def telling(places: Sequence[int], shares: Sequence[float], outcomes: Sequence[float] | None) -> list[int]:
    """Return one or two of the places: of the largest share, and of the largest among those with another outcome.

    Where all have one outcome, or none is known, the second is that of the second largest share.
    """
    first, *others = sorted(places, key=lambda place: -shares[place])
    apart = [place for place in others if outcomes is not None and outcomes[place] != outcomes[first]]
    return [first, *(apart or others)[:1]]
