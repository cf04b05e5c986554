"""How training draws its responses, in the studies `innovations`, `gspo` and `gad`; pydantic only."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ablation.contract.absent import Absent

COLDEST = 0.01  # vLLM takes lower temperatures for this one
VLLM_REMEDY = "run this in the environment that `make vllm` makes (docs/vllm.md), or set it to own"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Vllm(_Strict):
    """Settings of vLLM as the sampler (docs/vllm.md)."""

    memory_share: Annotated[float, Absent(0.4)] = Field(
        default=0.4, gt=0, lt=1, description="Share of GPU memory for vLLM."
    )
    cpu_cache_gib: Annotated[float, Absent(0.25)] = Field(
        default=0.25, gt=0, description="GiB of key-value cache on a CPU."
    )
    longest: Annotated[int | None, Absent(None)] = Field(
        default=None, ge=2, description="Longest prompt and response, in tokens; null: the model's limit."
    )
    sleep: Annotated[bool, Absent(False)] = Field(default=False, description="Release GPU memory between rollouts.")


class ImportanceWeights(_Strict):
    """min(pi_old / pi_sampler, cap): corrects for a sampler that gives tokens other probabilities than the trainer."""

    cap: float = Field(default=2.0, gt=0, description="Largest weight.")
    level: Literal["token", "sequence"] = Field(
        default="token", description="Per token, or the product over a response."
    )


class Sampled(_Strict):
    """What the studies' settings of a rollout have in common."""

    batch_size: int | None = Field(default=None, ge=1, description="Responses sampled at once; null: all.")
    recompute_logps: bool = Field(default=False, description="Old log-probabilities from a training forward pass.")
    engine: Annotated[Literal["own", "vllm"], Absent("own")] = Field(
        default="own", description="Sampler in training; evaluation uses own."
    )
    vllm: Annotated[Vllm, Absent({})] = Field(default=Vllm(), description="Settings of vLLM.")
    importance_weights: Annotated[ImportanceWeights | None, Absent(None)] = Field(
        default=None,
        description="Truncated importance sampling (TIS); needs recompute_logps. null: none.",
    )

    @property
    def _packages(self) -> dict[str, tuple[str, str]]:
        """The package that the engine needs: the key that asks for it, and the remedy."""
        return {"vllm": ("rollout.engine", VLLM_REMEDY)} if self.engine == "vllm" else {}

    @model_validator(mode="after")
    def _not_with_itself(self) -> Self:
        if self.importance_weights is not None and not self.recompute_logps:
            raise ValueError(
                "importance_weights compare the sampler's log-probabilities with recomputed ones: "
                "set recompute_logps: true"
            )
        return self
