"""The form of `configs/published/<name>.yaml`, which holds the numbers that a source reports.

Numbers keep the text that the source prints (`ablation.config.printed`), because its digits show how exact they are.
Unknown keys are errors everywhere.
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.config.names import StageName, Strict, Text
from ablation.config.printed import Cell, Printed
from ablation.config.validation import validate
from ablation.config.yaml_io import load_yaml
from ablation.contract.numbers import counted, stated

Count = Annotated[int, Field(ge=1)]

FINEST_TARGET = 10**6  # denominator: counts of items are compared with it in 64 bits


def is_target(number: Printed) -> bool:
    """Return whether a number can be the target of distances: a rate with at most six decimals."""
    return 0 <= number.exact <= 1 and number.exact.denominator <= FINEST_TARGET


def largest(target: Fraction | None) -> Fraction:
    """Return the largest possible distance of a rate from `target`; without a target, the largest rate, 1."""
    return Fraction(1) if target is None else max(target, 1 - target)


class Claim(Strict):
    """A claim of the source about the difference between two rows of its table."""

    variant: Text
    against: Text
    column: Text
    percent: Printed = Field(
        description="Claimed change of the column from `against` to `variant` in percent; negative if the value falls."
    )
    text: Text


class Standing(Strict):
    """A statement of the source that one number is the best in its column, or is below a bound."""

    variant: Text
    column: Text
    best: bool = False
    below: Printed | None = None
    text: Text

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.best == (self.below is not None):
            raise ValueError("needs exactly one of `best: true` and `below`; add one, or remove one")
        return self


class Delta(Strict):
    """A difference between two variants that the source reports as a range."""

    variant: Text
    against: Text
    column: Text
    low: Printed = Field(description="Smallest difference, `variant` minus `against`, in units of the metric.")
    high: Printed
    text: Text = Field(description="The source's own words.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low.exact > self.high.exact:
            raise ValueError(f"`low` ({self.low}) is above `high` ({self.high})")
        return self


Figure = Printed | tuple[Printed | None, Printed | None]  # a number, or a range that null leaves open


class Step(Strict):
    """A step of the source's training, out of `of` steps; it is compared with the same fraction of our training."""

    step: Count
    of: Count

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.step > self.of:
            raise ValueError(f"step {self.step} is after the last step, {self.of}; correct `step` or `of`")
        return self


class Reading(Strict):
    """Numbers about one variant's training that the source states together, such as a line of its log.

    A value is a number or a range [low, high], in which null leaves an end open. `|actor/pg_loss|` is the absolute
    value of the metric between the bars.
    """

    variant: Text
    stage: StageName | None = Field(
        default=None, description="The stage of our study that logs the metrics; null: every stage that logs them."
    )
    kind: Literal["seen", "healthy", "expected"] = Field(
        description="seen: a log of the source shows the values; healthy: the source calls the values healthy; "
        "expected: the source expects the values of the variant."
    )
    at: Literal["start", "end"] | Step | None = Field(
        default=None,
        description="The part of training: start (the first tenth), end (the last tenth) or a step; null: the whole "
        "training.",
    )
    values: dict[Text, Figure] = Field(min_length=1, description="The value of each metric.")
    possible: dict[Text, Figure] = Field(
        default={},
        description="For each metric, the range of values that the code can compute. A reported range that contains "
        "this whole range is true by construction.",
    )
    set_by: dict[Text, Text] = Field(
        default={},
        description="For each metric that a setting determines, the configuration key of that setting. The metric is "
        "compared only if the key has the reported value.",
    )
    scale: Text | None = Field(
        default=None,
        description="The only scale at which these numbers are compared, if they depend on lengths or constants "
        "of the source's data; null: every scale.",
    )
    text: Text = Field(description="The source's own words.")

    @model_validator(mode="after")
    def _figures(self) -> Self:
        for metric, value in [*self.values.items(), *self.possible.items()]:
            if isinstance(value, Printed):
                continue
            low, high = value
            if low is None and high is None:
                raise ValueError(f"the range of {metric} has no bound; give at least one bound")
            if low is not None and high is not None and low.exact > high.exact:
                raise ValueError(f"the low end {low} of {metric} is above the high end {high}; correct one of them")
        for metric in {*self.possible, *self.set_by} - {*self.values}:
            raise ValueError(f"{metric} is missing from `values`; add it")
        if self.at is not None and self.stage is None:
            raise ValueError("`at` is a part of one stage's training; name the stage with `stage`")
        return self


class PublishedFile(Strict):
    """The content of `configs/published/<name>.yaml`. A source may report `rows`, `deltas`, `training` or several."""

    source: Text
    metric: Text | None = Field(default=None, description="The metric that the columns hold.")
    target: Printed | None = Field(
        default=None,
        description="The columns hold distances of rates from this number; null: the columns hold rates themselves.",
    )
    model: Text | None = Field(default=None, description="The model that the source evaluates; null: not stated.")
    items: dict[str, Count] = Field(default={}, description="For each column, its number of evaluation items.")
    batch_size: Count | list[Count] | None = Field(
        default=None,
        description="Batch size of the source's evaluation, if it averages over batches; [128, 32] is the mean over "
        "batches of 128, each averaged over batches of 32.",
    )
    runs: int | None = Field(
        default=None, ge=1, description="Number of training runs that each number averages; null: not stated."
    )
    columns: list[Text] = Field(default=[])
    mean: Text = Field(default="mean", description="The column that holds the mean of all columns that `items` names.")
    rows: dict[str, list[Cell | None]] = Field(default={}, description="For each variant, one number per column.")
    claims: list[Claim] = Field(default=[])
    standings: list[Standing] = Field(default=[], description="Statements such as 'the best' or 'below 0.004'.")
    deltas: list[Delta] = Field(
        default=[], description="Differences between variants, for a source that states only differences."
    )
    training: list[Reading] = Field(
        default=[], description="Numbers about the training, compared with the curves of the runs."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name, row in self.rows.items():
            if len(row) != len(self.columns):
                size = f"{counted(len(row), 'number')} for {counted(len(self.columns), 'column')}"
                raise ValueError(f"rows.{name} has {size}; write a number or null for each column")
        for claim in self.claims:
            if claim.variant not in self.rows or claim.against not in self.rows or claim.column not in self.columns:
                raise ValueError(
                    f"claims: row {claim.variant}, row {claim.against} or column {claim.column} is missing from the "
                    "table; correct the names, or add them to the table"
                )
        for standing in self.standings:
            if standing.variant not in self.rows or standing.column not in self.columns:
                raise ValueError(
                    f"standings: row {standing.variant} or column {standing.column} is missing from the table; "
                    "correct the names, or add them to the table"
                )
        self._check_range()
        if not self.rows and not self.deltas and not self.training:
            raise ValueError("the file reports nothing; give `rows`, `deltas` or `training`")
        if (self.rows or self.deltas) and self.metric is None:
            raise ValueError("`rows` and `deltas` need a `metric`; add it")
        if (self.metric or "").endswith("distance") and self.target is None:
            raise ValueError(f"`metric: {self.metric}` is a distance, so `target` is needed; add it")
        if strange := [delta.column for delta in self.deltas if delta.column not in self.columns]:
            raise ValueError(f"deltas: `columns` does not contain {', '.join(strange)}; add what is missing")
        if unknown := set(self.items) - set(self.columns):
            raise ValueError(f"items: `columns` does not contain {', '.join(sorted(unknown))}; add what is missing")
        return self

    def _check_range(self) -> None:
        if self.target is not None and not is_target(self.target):
            raise ValueError(f"target {self.target} is not a rate from 0 to 1 with at most six decimals")
        most = largest(None if self.target is None else self.target.exact)
        for name, row in self.rows.items():
            for column, cell in zip(self.columns, row, strict=False):
                if cell is None or column not in self.items or 0 <= cell.number.exact <= most:
                    continue
                what = f"rows.{name}: {column} is {cell.number}, but a"
                if self.target is not None:
                    raise ValueError(
                        f"{what} distance of a rate from {self.target} must be from 0 to {stated(float(most))}; if the "
                        "numbers are the rates themselves, leave out `target`"
                    )
                raise ValueError(f"{what} rate must be from 0 to 1; write a percentage with the sign %, such as 51.7%")


def load_published(file: Path) -> PublishedFile:
    """Read a file of published numbers. Raises ConfigError, with file, key and value, if something is not valid."""
    return validate(PublishedFile, load_yaml(file, as_printed=True), file)
