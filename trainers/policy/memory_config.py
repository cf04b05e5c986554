"""Settings by which a training takes less memory, of the studies `innovations`, `gspo` and `gad`; pydantic only."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ablation.contract.absent import Absent


class Lora(BaseModel):
    """Low-rank adapters (arXiv 2106.09685) beside frozen weights; needs peft, the extra `lora`. Their dropout is 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(default=16, ge=1, description="Rank.")
    alpha: float = Field(default=32.0, gt=0, description="The update is alpha / rank times B A.")
    targets: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Last parts of layer names, such as q_proj; null: all linear layers of the blocks.",
    )


class Memory(BaseModel):
    """How a training takes less memory; docs/several-devices.md says what each saves, and what it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer_states: Annotated[Literal["float32", "bfloat16", "8bit"], Absent("float32")] = Field(
        default="float32",
        description="AdamW's moments: 8, 4 or 2 bytes per parameter, the latter rounded stochastically.",
    )
    lora: Annotated[Lora | None, Absent(None)] = Field(
        default=None, description="Train low-rank adapters and save the merged model; null: all weights."
    )

    def _packages(self, key: str) -> dict[str, tuple[str, str]]:
        """The packages that the settings under `key` need: the key that asks for each, and the remedy."""
        remedy = "pip install 'ablation-tracker[lora]', or set it to null"
        return {} if self.lora is None else {"peft": (f"{key}.lora", remedy)}
