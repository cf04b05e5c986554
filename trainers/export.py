"""Copy a trained model as one Hugging Face folder.

    python -m trainers.export --from results/stages/gad/gad/KEY/student --to my-student
    python -m trainers.export --from results/stages/gad/gad/KEY/critic --to my-critic
    python -m trainers.export --from results/stages/gspo/reinforce/KEY/checkpoint --hf-model BASE --to so-far

A critic, which is a language model's body with a linear head, becomes a token classifier whose only logit is the
critic's score of a token; verl and `critic.init: reward_model` can use it. The checkpoint of a running or failed stage,
even one written by several processes, becomes one model. A model is loaded before it is written, so the result can
always be loaded. Weights keep their precision unless --precision names another.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, PretrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from trainers.models.causal import refuse_pickles
from trainers.policy.models import load_tokenizer
from trainers.policy.value_model import HEAD
from trainers.running.checkpoint import STATE
from trainers.running.checkpoint import load as load_checkpoint
from trainers.running.state import names_below

TRAINED = ("policy", "student", "model")  # names of language models in the checkpoints of stages
PRECISIONS = ("float32", "bfloat16", "float16")


def export(source: Path, target: Path, *, described_by: Path | None = None, precision: str | None = None) -> None:
    """Write model (safetensors, config) and tokenizer of the folder `source` to the new or empty folder `target`.

    described_by: folder with config.json and tokenizer, if `source` does not have them. precision: data type of the
    written weights; None: unchanged. Raises ValueError if `source` does not exist or lacks files, if `target` is not
    empty, or if the weights are pickled, incomplete or of another architecture.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} exists and is not an empty folder; choose a new or empty folder")
    if not source.is_dir():
        raise ValueError(f"the folder {source} does not exist; correct --from")
    disable_progress_bar()
    described = described_by or _description(source)
    if (source / STATE).exists():
        model = _from_checkpoint(source, described)
    elif (source / HEAD).exists():
        model = _critic(source)
    else:
        refuse_pickles(source)
        model = _load(source, source, dtype="auto")
    if precision is not None:
        model = model.to(getattr(torch, precision))
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target)
    load_tokenizer(described).save_pretrained(target)


def _description(source: Path) -> Path:
    """Return the folder with config.json and tokenizer: `source` or, for a critic, the student's folder beside it."""
    for folder in (source, source.parent / "student"):
        if (folder / "tokenizer_config.json").exists():
            return folder
    raise ValueError(f"{source}: config.json and tokenizer are missing; name the base model's folder with --hf-model")


def _from_checkpoint(source: Path, described: Path) -> PreTrainedModel:
    """Return the language model in a stage's checkpoint, described by config.json in the folder `described`."""
    saved = load_checkpoint(source)
    if saved is None:
        raise ValueError(f"{source}: the checkpoint is incomplete, or a stage has just replaced it; try again")
    for name in TRAINED:
        if names := names_below(saved.tensors, name):
            state = {each: saved.tensors.empty(f"{name}/{each}") for each in names}
            saved.tensors.read({f"{name}/{each}": tensor for each, tensor in state.items()})
            if any("lora_" in each for each in state):
                raise ValueError(
                    f"{source}: a checkpoint of a stage with memory.lora contains only the adapters; "
                    "wait until the stage ends, and export the merged model in its folder"
                )
            config = AutoConfig.from_pretrained(described, local_files_only=True)
            dtype = next(value.dtype for value in state.values() if value.is_floating_point())
            return _load(source, None, config=config, state_dict=state, dtype=dtype)
    raise ValueError(f"{source}: the checkpoint has no language model; name the checkpoint of a stage that trains one")


def _load(source: Path, folder: Path | None, *, config: PretrainedConfig | None = None, **how: Any) -> PreTrainedModel:
    """Return the model in `folder`, or with the state dict in `how`.

    Raises ValueError if the weights do not fit the model.
    """
    config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
    architecture = (config.architectures or [""])[0]
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise ValueError(f"{source}: transformers has no architecture {architecture!r}; correct config.json")
    model, loaded = kind.from_pretrained(folder, config=config, local_files_only=True, output_loading_info=True, **how)
    wrong = [f"{kind.replace('_', ' ')} {sorted(map(str, names))[:3]}" for kind, names in loaded.items() if names]
    if wrong:
        problem = f"the weights do not fit {type(model).__name__} ({'; '.join(wrong)})"
        raise ValueError(f"{source}: {problem}; use weights and config.json of the same model")
    return model


def _critic(source: Path) -> PreTrainedModel:
    """Return the critic in the folder `source` as a token classifier with one label."""
    refuse_pickles(source)
    body = AutoModel.from_pretrained(source, dtype="auto", local_files_only=True)
    config = AutoConfig.from_pretrained(source, local_files_only=True, num_labels=1)
    model = AutoModelForTokenClassification.from_config(config).to(body.dtype)
    prefix = model.base_model_prefix
    heads = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(f"{prefix}.")
    ]
    if len(heads) != 1 or heads[0].bias is None:
        problem = f"{type(model).__name__} does not have exactly one linear head with a bias"
        raise ValueError(f"{source}: {problem}; this critic cannot be exported")
    getattr(model, prefix).load_state_dict(body.state_dict())
    heads[0].load_state_dict(load_file(source / HEAD))
    return model


def main(argv: Sequence[str] | None = None) -> int:
    """Export a model; return the exit status, which is 2 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.export", description="Copy a trained model as one Hugging Face folder."
    )
    parser.add_argument(
        "--from", dest="source", type=Path, required=True, help="folder of a model, critic or checkpoint"
    )
    parser.add_argument("--to", type=Path, required=True, help="new or empty folder for the copy")
    parser.add_argument("--hf-model", type=Path, help="folder with config.json and tokenizer, if --from lacks them")
    parser.add_argument("--precision", choices=PRECISIONS, help="data type of the copied weights (default: unchanged)")
    arguments = parser.parse_args(argv)
    try:
        export(arguments.source, arguments.to, described_by=arguments.hf_model, precision=arguments.precision)
    except (OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
