"""Copy a trained model as one Hugging Face folder.

    python -m trainers.export --from results/stages/gad/gad/KEY/student --to my-student
    python -m trainers.export --from results/stages/gad/gad/KEY/critic --to my-critic
    python -m trainers.export --from results/stages/gspo/reinforce/KEY/checkpoint --hf-model BASE --to so-far

A critic, which is a body and one linear head, becomes a token classifier with one label: its logit at a token is the
critic's score there, and verl and `critic.init: reward_model` take it as it is. The checkpoint of a stage that runs or
has failed, which several processes may have written, becomes a whole model. A model is loaded before it is written, so
a folder that would not load is never made. Weights keep their precision, unless another is asked for.
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

TRAINED = ("policy", "student", "model")  # what stages call a language model in their checkpoints
PRECISIONS = ("float32", "bfloat16", "float16")


def export(source: Path, target: Path, *, described_by: Path | None = None, precision: str | None = None) -> None:
    """Write model (safetensors, config) and tokenizer of the folder `source` to the new or empty folder `target`.

    described_by: a folder with config.json and tokenizer, where they do not lie in `source`.
    precision: of the weights written; None: as they are.
    Raises ValueError if `target` is not empty, or the weights are pickled, incomplete or not the architecture's.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target}: exists and is not an empty folder; choose another folder, or remove it")
    if not source.is_dir():
        raise ValueError(f"{source}: the folder does not exist")
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
    """Return the folder with config.json and tokenizer: that of the weights, or of a critic's student."""
    for folder in (source, source.parent / "student"):
        if (folder / "tokenizer_config.json").exists():
            return folder
    raise ValueError(f"{source}: the folder has no config.json and tokenizer; name the base model's folder")


def _from_checkpoint(source: Path, described: Path) -> PreTrainedModel:
    """Return the language model that a stage of one or of several processes was training."""
    saved = load_checkpoint(source)
    if saved is None:
        raise ValueError(f"{source}: the checkpoint is incomplete or was replaced meanwhile; try again")
    for name in TRAINED:
        if names := names_below(saved.tensors, name):
            state = {each: saved.tensors.empty(f"{name}/{each}") for each in names}
            saved.tensors.read({f"{name}/{each}": tensor for each, tensor in state.items()})
            if any("lora_" in each for each in state):
                raise ValueError(
                    f"{source}: checkpoints of a stage that trains with memory.lora hold only the adapters; "
                    "when the stage has ended, export the merged model, which lies beside the checkpoints"
                )
            config = AutoConfig.from_pretrained(described, local_files_only=True)
            dtype = next(value.dtype for value in state.values() if value.is_floating_point())
            return _load(source, None, config=config, state_dict=state, dtype=dtype)
    raise ValueError(f"{source}: the checkpoint does not contain {' or '.join(TRAINED)}")


def _load(source: Path, folder: Path | None, *, config: PretrainedConfig | None = None, **how: Any) -> PreTrainedModel:
    """Return the model. Raises an error if weights are missing or unexpected."""
    config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
    architecture = (config.architectures or [""])[0]
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise ValueError(f"{source}: transformers does not know the architecture {architecture!r} of config.json")
    model, loaded = kind.from_pretrained(folder, config=config, local_files_only=True, output_loading_info=True, **how)
    wrong = [f"{kind.replace('_', ' ')} {sorted(map(str, names))[:3]}" for kind, names in loaded.items() if names]
    if wrong:
        raise ValueError(f"{source}: the weights are not those of {type(model).__name__}: {'; '.join(wrong)}")
    return model


def _critic(source: Path) -> PreTrainedModel:
    """Return a critic as a token classifier with one label."""
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
        raise ValueError(f"{source}: {type(model).__name__} has no single linear head with a bias")
    getattr(model, prefix).load_state_dict(body.state_dict())
    heads[0].load_state_dict(load_file(source / HEAD))
    return model


def main(argv: Sequence[str] | None = None) -> int:
    """Export a model; a known problem is printed as one line, with exit status 2."""
    parser = argparse.ArgumentParser(prog="python -m trainers.export", description="Copy a trained model.")
    parser.add_argument("--from", dest="source", type=Path, required=True, help="folder of the model")
    parser.add_argument("--to", type=Path, required=True, help="new folder")
    parser.add_argument(
        "--hf-model", type=Path, help="folder of config.json and tokenizer, if they are not beside the weights"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="type of the weights that are written (default: unchanged)"
    )
    arguments = parser.parse_args(argv)
    try:
        export(arguments.source, arguments.to, described_by=arguments.hf_model, precision=arguments.precision)
    except (OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
