"""The form of `configs/scales/<scale>.yaml`. Unknown keys are errors everywhere."""

from typing import Annotated, Any

from pydantic import Field

from ablation.config.names import StageName, Strict


class ResourceOverride(Strict):
    """Resources that a scale replaces."""

    threads: int | None = Field(default=None, ge=1)
    mem_mb: int | None = Field(default=None, ge=1)
    runtime: int | None = Field(default=None, ge=1)
    gpu: int | None = Field(default=None, ge=0)
    nodes: int | None = Field(default=None, ge=1)


class ScaleStudy(Strict):
    """How a scale sizes one study."""

    seeds: int | list[int] | None = Field(
        default=None, description="How many seeds this study has, or which; absent: those of the scale."
    )
    set: dict[str, Any] = Field(default={}, description="Values that replace those of every variant.")
    multiply: dict[str, Annotated[float, Field(gt=0)]] = Field(default={}, description="Dotted key: factor.")
    resources: dict[StageName, ResourceOverride] = Field(default={})


class ScaleFile(Strict):
    """`configs/scales/<scale>.yaml`."""

    seeds: int | list[int] = Field(
        description="How many seeds, or which, unless the settings or a study's own `seeds` say otherwise."
    )
    device_memory: float | None = Field(
        default=None,
        gt=0,
        description="GiB of one accelerator, as its name says them; absent: nothing is held against it.",
    )
    studies: dict[str, ScaleStudy] = Field(default={})
