"""Settings by which a training takes less memory, of the studies `innovations`, `gspo` and `gad`; pydantic only."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from contract.absent import Absent

LOW_BIT = "trainers.policy.low_bit_adamw"


class Memory(BaseModel):
    """How a training takes less memory; docs/several-devices.md says what each saves, and what it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    optimizer_states: Annotated[Literal["float32", "bfloat16", "8bit"], Absent("float32")] = Field(
        default="float32",
        description="AdamW's moments: 8 bytes a parameter; 4 with bfloat16, 2 with 8bit, both rounded at random.",
    )

    @property
    def _modules(self) -> list[str]:
        """The modules that these settings need."""
        return [] if self.optimizer_states == "float32" else [LOW_BIT]
