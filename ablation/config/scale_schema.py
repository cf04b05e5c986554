"""The form of `configs/scales/<scale>.yaml`. Unknown keys are errors everywhere."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ablation.config.names import StageName, Strict, distinct

_MAX_SEEDS = 10_000


def _counted(seeds: Any) -> Any:
    """Return the seeds 0 to n-1 for a number n, and others as they are, to be checked."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= _MAX_SEEDS:
            raise ValueError(f"is not a sensible number of seeds; 1 to {_MAX_SEEDS}, or a list of seeds")
        return tuple(range(seeds))
    if not isinstance(seeds, list | tuple):
        raise ValueError("is neither a whole number nor a list; 3, or [0, 1, 2]")
    return tuple(seeds)


Seed = Annotated[int, Field(ge=0, lt=2**32)]  # numpy's generators take no larger one
Seeds = Annotated[
    tuple[Seed, ...],
    Field(min_length=1),
    BeforeValidator(_counted, json_schema_input_type=int | list[int]),
    AfterValidator(distinct),
]


class ResourceOverride(Strict):
    """Resources that a scale replaces."""

    threads: int | None = Field(default=None, ge=1)
    mem_mb: int | None = Field(default=None, ge=1)
    runtime: int | None = Field(default=None, ge=1)
    gpu: int | None = Field(default=None, ge=0)
    nodes: int | None = Field(default=None, ge=1)


class ScaleStudy(Strict):
    """How a scale sizes one study."""

    seeds: Seeds | None = Field(
        default=None, description="How many seeds this study has, or which; absent: the scale's seeds."
    )
    set: dict[str, Any] = Field(default={}, description="Values that replace every variant's own.")
    multiply: dict[str, Annotated[float, Field(gt=0)]] = Field(default={}, description="Dotted key: factor.")
    resources: dict[StageName, ResourceOverride] = Field(default={})


class ScaleFile(Strict):
    """`configs/scales/<scale>.yaml`."""

    seeds: Seeds = Field(
        description="How many seeds, or which, unless the settings or a study's own `seeds` say otherwise."
    )
    device_memory: float | None = Field(
        default=None,
        gt=0,
        description="GiB of one accelerator, as in its name; absent: memory is not checked.",
    )
    studies: dict[str, ScaleStudy] = Field(default={})
