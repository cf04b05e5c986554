"""The form of `configs/published/<name>.yaml`: numbers that someone reported. Unknown keys are errors everywhere.

Numbers keep the text that the source prints (`ablation.config.printed`): its digits say how exact they are.
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.config.names import StageName, Strict, Text
from ablation.config.printed import Cell, Printed
from ablation.config.validation import validate
from ablation.config.yaml_io import load_yaml

Count = Annotated[int, Field(ge=1)]

FINEST_TARGET = 10**6  # denominator: counts of items are compared with it in 64 bits


def is_target(number: Printed) -> bool:
    """Whether columns may hold distances from this number: a rate with at most six decimals."""
    return 0 <= number.exact <= 1 and number.exact.denominator <= FINEST_TARGET


def largest(target: Fraction | None) -> Fraction:
    """Return the largest rate, or the largest distance of a rate from `target`."""
    return Fraction(1) if target is None else max(target, 1 - target)


class Claim(Strict):
    """One sentence of the source about two rows."""

    variant: Text
    against: Text
    column: Text
    percent: Printed = Field(description="Claimed change of the column from `against` to `variant`; negative: lower.")
    text: Text


class Standing(Strict):
    """A statement of the source about one number: that it is the best of its column, or below a bound."""

    variant: Text
    column: Text
    best: bool = False
    below: Printed | None = None
    text: Text

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.best == (self.below is not None):
            raise ValueError("give either `best: true` or `below`")
        return self


class Delta(Strict):
    """A reported difference between two variants, as the range that the source gives."""

    variant: Text
    against: Text
    column: Text
    low: Printed = Field(description="Least difference `variant` minus `against`, in units of the metric.")
    high: Printed
    text: Text = Field(description="What the source calls it.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low.exact > self.high.exact:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self


Figure = Printed | tuple[Printed | None, Printed | None]  # a number, or a range that null leaves open


class Step(Strict):
    """A step of the source's training and how many steps it had: ours is the step at the same fraction."""

    step: Count
    of: Count

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.step > self.of:
            raise ValueError(f"step {self.step} is after the last of {self.of}")
        return self


class Reading(Strict):
    """Training figures of one variant that the source states together: one line of its log, or one of its tables.

    A value is a number or a range [low, high], where null leaves a side open. A metric between bars, `|actor/pg_loss|`,
    is its absolute value.
    """

    variant: Text
    stage: StageName | None = Field(
        default=None, description="The stage that measures it here; null: every stage that logs it."
    )
    kind: Literal["seen", "healthy", "expected"] = Field(
        description="seen in a log of the source, called healthy by it, or expected by it of the variant."
    )
    at: Literal["start", "end"] | Step | None = Field(
        default=None, description="The part of training: the first or last tenth, or a step; null: all of it."
    )
    values: dict[Text, Figure] = Field(min_length=1, description="Metric: value.")
    possible: dict[Text, Figure] = Field(
        default={},
        description="Metric: the range of values that the code can compute. A claim that contains the range is "
        "true by construction.",
    )
    set_by: dict[Text, Text] = Field(
        default={},
        description="Metric: the configuration key whose value is that number. Compared only if the key has it.",
    )
    scale: Text | None = Field(
        default=None,
        description="The only scale at which the metric is compared, because it depends on lengths or constants "
        "of the source's data.",
    )
    text: Text = Field(description="What the source calls it.")

    @model_validator(mode="after")
    def _figures(self) -> Self:
        for metric, value in [*self.values.items(), *self.possible.items()]:
            if isinstance(value, Printed):
                continue
            low, high = value
            if low is None and high is None:
                raise ValueError(f"{metric}: a range needs a bound")
            if low is not None and high is not None and low.exact > high.exact:
                raise ValueError(f"{metric}: low {low} is above high {high}")
        for metric in {*self.possible, *self.set_by} - {*self.values}:
            raise ValueError(f"{metric} is not among the values")
        if self.at is not None and self.stage is None:
            raise ValueError("`at` needs the `stage` whose steps it counts")
        return self


class PublishedFile(Strict):
    """The whole file. `rows`, `deltas` and `training` are three forms of report; a source may have any of them."""

    source: Text
    metric: Text | None = Field(default=None, description="What the columns hold.")
    target: Printed | None = Field(
        default=None,
        description="The columns hold distances between a rate and this number; null: the columns hold rates.",
    )
    model: Text | None = Field(default=None, description="null: the source does not say.")
    items: dict[str, Count] = Field(default={}, description="Column: the number of evaluation items behind it.")
    batch_size: Count | list[Count] | None = Field(
        default=None,
        description="Of the source's evaluation, if it averages batches; [128, 32]: means over batches of 32 in each "
        "batch of 128, then over the batches of 128.",
    )
    runs: int | None = Field(
        default=None, ge=1, description="Number of training runs that each number averages; null: not stated."
    )
    columns: list[Text] = Field(default=[])
    mean: Text = Field(default="mean", description="The column that holds the mean of the columns with items.")
    rows: dict[str, list[Cell | None]] = Field(default={}, description="Variant: one number per column.")
    claims: list[Claim] = Field(default=[])
    standings: list[Standing] = Field(default=[], description="Statements such as 'the best' or 'below 0.004'.")
    deltas: list[Delta] = Field(default=[], description="Differences, for a source that gives no values.")
    training: list[Reading] = Field(
        default=[], description="Numbers about the training, compared with the curves of the runs."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name, row in self.rows.items():
            if len(row) != len(self.columns):
                raise ValueError(f"rows.{name} has {len(row)} numbers for {len(self.columns)} columns")
        for claim in self.claims:
            if claim.variant not in self.rows or claim.against not in self.rows or claim.column not in self.columns:
                raise ValueError(
                    f"claims: {claim.variant} against {claim.against}, {claim.column}: is not in the table"
                )
        for standing in self.standings:
            if standing.variant not in self.rows or standing.column not in self.columns:
                raise ValueError(f"standings: {standing.variant}, {standing.column}: is not in the table")
        self._holds_what_it_says()
        if not self.rows and not self.deltas and not self.training:
            raise ValueError("nothing is reported: give `rows`, `deltas` or `training`")
        if (self.rows or self.deltas) and self.metric is None:
            raise ValueError("`rows` and `deltas` need a `metric`")
        if (self.metric or "").endswith("distance") and self.target is None:
            raise ValueError(f"`metric: {self.metric}` is a distance, so it needs a `target`")
        if strange := [delta.column for delta in self.deltas if delta.column not in self.columns]:
            raise ValueError(f"deltas: {strange} are not columns")
        if unknown := set(self.items) - set(self.columns):
            raise ValueError(f"items: {sorted(unknown)} are not columns")
        return self

    def _holds_what_it_says(self) -> None:
        """Rates lie between 0 and 1, and a distance is not larger than its target allows."""
        if self.target is not None and not is_target(self.target):
            raise ValueError(f"target {self.target} is not a rate from 0 to 1 with at most six decimals")
        most = largest(None if self.target is None else self.target.exact)
        for name, row in self.rows.items():
            for column, cell in zip(self.columns, row, strict=False):
                if cell is None or column not in self.items or 0 <= cell.number.exact <= most:
                    continue
                what = f"rows.{name}: {column} is {cell.number}, which is not a"
                if self.target is not None:
                    raise ValueError(
                        f"{what} distance of a rate from {self.target}: at most {float(most):g}; for the rates "
                        "themselves leave `target` out"
                    )
                raise ValueError(f"{what} rate between 0 and 1; write percentages with their sign, as 51.7%")


def load_published(file: Path) -> PublishedFile:
    """Read what a source reports. Raises ConfigError, one line that names file, key and value."""
    return validate(PublishedFile, load_yaml(file, as_printed=True), file)
