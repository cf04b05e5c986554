"""The form of tables, curves and figures in `_study.yaml`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.config.names import Strict, Text

_LABEL: str = Field(default_factory=lambda data: data.get("metric", ""), description="Default: the metric.")


class ColumnDefinition(Strict):
    """One column of the table: a metric of the last stage."""

    metric: Text = Field(description="<protocol>/<subset>/<metric>.")
    label: Text = _LABEL
    published: str | None = Field(default=None, description="Column of the published table.")


class ReferenceDefinition(Strict):
    """A first row of the table: the same columns with parts of the metric's name replaced."""

    label: Text
    replace: dict[str, str] = Field(min_length=1)


class MeansOver(Strict):
    """Values that are means over several policies of each run; the tables say so."""

    key: Text = Field(description="Key of the configuration that counts the policies.")
    protocols: list[Text] = Field(min_length=1, description="Protocols whose values are such means.")
    of: Text = Field(default="policies", description="What is counted, in the plural.")


class TableDefinition(Strict):
    """The comparison table."""

    columns: list[ColumnDefinition] = Field(min_length=1)
    reference: ReferenceDefinition | None = None
    means_over: MeansOver | None = None


class CurveDefinition(Strict):
    """One learning curve."""

    metric: Text
    label: Text = _LABEL


class FigurePanel(CurveDefinition):
    """One panel of a figure."""

    log: bool = Field(
        default=False, description="For lines and each: a logarithmic axis; what is not above 0 is left out."
    )
    variants: list[Text] | None = Field(
        default=None, min_length=1, description="For subsets and distributions: only these, in this order; null: all."
    )


class FigureAxis(Strict):
    """What stands on the horizontal axis: another metric of the same stage, step by step."""

    metric: Text
    label: Text


class FigureDefinition(Strict):
    """A figure of its own: one panel per metric with a line, a bar or boxes per variant."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", description="Name of the file.")]
    kind: Literal["lines", "each", "bars", "subsets", "distributions"] = Field(
        description="lines: along the steps; each: the same, a panel per variant, with its parent; bars: mean over the "
        "steps; subsets: a final metric along its subsets; "
        "distributions: quantiles of item values of any stage, a box per subset. The last two need the metric "
        "<protocol>/*/<name>."
    )
    title: Text
    panels: list[FigurePanel] = Field(min_length=1)
    x: FigureAxis | None = Field(default=None, description="For lines and each; null: the step.")
    axis: Text | None = Field(default=None, description="For subsets: what they are, in words.")
    columns: int = Field(default=2, ge=1, le=6, description="Panels side by side.")
    variants: list[Text] = Field(default=[], description="The variants shown, in the order of the lineage; none: all.")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        over_subsets = self.kind in ("subsets", "distributions")
        for panel in self.panels:
            parts = panel.metric.split("/")
            if over_subsets and (len(parts) != 3 or parts[1] != "*" or "*" in parts[0] + parts[2]):
                raise ValueError(f"panels: kind {self.kind} needs a metric <protocol>/*/<name>, not {panel.metric!r}")
            if panel.variants is not None and not over_subsets:
                raise ValueError(f"panels: `variants` has no effect with kind {self.kind}")
            if panel.variants is not None and self.variants:
                raise ValueError("`variants` of the figure and of a panel: give one of them")
        if self.kind == "each" and len(self.panels) != 1:
            raise ValueError(f"kind each draws one metric in a panel per variant, not {len(self.panels)} panels")
        if self.kind not in ("lines", "each") and any(panel.log for panel in self.panels):
            raise ValueError(f"panels: log has no effect with kind {self.kind}")
        if self.x is not None and self.kind not in ("lines", "each"):
            raise ValueError(f"x has no effect with kind {self.kind}")
        if self.axis is not None and self.kind != "subsets":
            raise ValueError(f"axis has no effect with kind {self.kind}")
        return self
