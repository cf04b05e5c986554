"""The form of `configs/published/<name>.yaml`: numbers that someone reported. Unknown keys are errors everywhere."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tracker.config.names import StageName, Strict, Text


class Claim(Strict):
    """One sentence of the source about two rows."""

    variant: Text
    against: Text
    column: Text
    percent: float = Field(description="Claimed change of the column from `against` to `variant`; negative: lower.")
    text: Text


class Delta(Strict):
    """A reported difference between two variants, as the range that the source gives."""

    variant: Text
    against: Text
    column: Text
    low: float = Field(description="Least difference `variant` minus `against`, in units of the metric.")
    high: float
    text: Text = Field(description="What the source calls it.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class Reading(Strict):
    """Training figures of one variant that the source states together: one line of its log, or one of its tables.

    A value is a number or a range [low, high], where null leaves a side open. A metric between bars, `|actor/pg_loss|`,
    is its absolute value.
    """

    variant: Text
    stage: StageName | None = Field(default=None, description="Where it is measured here; null: wherever it is logged.")
    kind: Literal["seen", "healthy", "expected"] = Field(
        description="seen in a log of the source; the range that it calls healthy; what it expected of the variant."
    )
    at: Text | None = Field(default=None, description="Where in the source's training, such as `step 141`.")
    values: dict[Text, float | tuple[float | None, float | None]] = Field(min_length=1, description="Metric: value.")
    text: Text = Field(description="What the source calls it.")

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        for metric, value in self.values.items():
            if isinstance(value, float):
                continue
            low, high = value
            if low is None and high is None:
                raise ValueError(f"{metric}: a range needs a bound")
            if low is not None and high is not None and low > high:
                raise ValueError(f"{metric}: low {low:g} is above high {high:g}")
        return self


class Difference(Strict):
    """A metric that is one metric minus another by definition, so that readings of all three can be checked."""

    metric: Text
    of: Text
    less: Text


class PublishedFile(Strict):
    """The whole file. `rows`, `deltas` and `training` are three forms of report; a source may have any of them."""

    source: Text
    metric: Text | None = Field(default=None, description="What the columns hold; a `*_distance` is from 0.5.")
    model: Text | None = Field(default=None, description="null: the source does not say.")
    items: dict[str, Annotated[int, Field(ge=1)]] = Field(default={}, description="Evaluation items behind a column.")
    batch_size: int | None = Field(
        default=None, ge=1, description="Of the source's evaluation, if it averages batches."
    )
    columns: list[Text] = Field(default=[])
    rows: dict[str, list[float | None]] = Field(default={}, description="Variant: one number per column.")
    claims: list[Claim] = Field(default=[])
    deltas: list[Delta] = Field(default=[], description="Where the source gives differences and no values.")
    training: list[Reading] = Field(default=[], description="Figures of the training, beside our curves.")
    differences: list[Difference] = Field(default=[], description="Which figures are differences of others.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name, row in self.rows.items():
            if len(row) != len(self.columns):
                raise ValueError(f"rows.{name} has {len(row)} numbers for {len(self.columns)} columns")
        for claim in self.claims:
            if claim.variant not in self.rows or claim.against not in self.rows or claim.column not in self.columns:
                raise ValueError(f"claims: {claim.variant} against {claim.against}, {claim.column}: not in the table")
        if not self.rows and not self.deltas and not self.training:
            raise ValueError("nothing is reported: give `rows`, `deltas` or `training`")
        if (self.rows or self.deltas) and self.metric is None:
            raise ValueError("`rows` and `deltas` need a `metric`")
        if strange := [delta.column for delta in self.deltas if delta.column not in self.columns]:
            raise ValueError(f"deltas: {strange} are no columns")
        if unknown := set(self.items) - set(self.columns):
            raise ValueError(f"items: {sorted(unknown)} are no columns")
        return self
