"""Copy a trained model as one Hugging Face folder.

    python -m trainers.export --from results/stages/gad/gad/KEY/student --to my-student

What a distributed backend left as pieces of tensors, one file per rank (torch's safetensors checkpoints,
`shard-*.safetensors`), is merged; the model is loaded before it is written, so a folder that would not load is never
made. Weights keep their precision.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from trainers.models import refuse_pickles
from trainers.policy.models import load_tokenizer

PIECES = "shard-*.safetensors"


def export(source: Path, target: Path) -> None:
    """Write model (safetensors, config) and tokenizer of the folder `source` to the new or empty folder `target`.

    Raises ValueError where `target` is not empty, or the weights are pickled, incomplete or not the architecture's.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target}: exists and is not an empty folder; choose another, or remove it")
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="export-") as scratch:
        whole = merge_pieces(source, Path(scratch)) if any(source.glob(PIECES)) else source
        refuse_pickles(whole)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            whole, dtype="auto", local_files_only=True, output_loading_info=True
        )
        wrong = [f"{kind.replace('_', ' ')} {sorted(names)[:3]}" for kind, names in loaded.items() if names]
        if wrong:
            raise ValueError(f"{source}: the weights are not those of {type(model).__name__}: {'; '.join(wrong)}")
        target.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(target)
    load_tokenizer(source).save_pretrained(target)


def merge_pieces(source: Path, scratch: Path) -> Path:
    """Return a folder in `scratch` with whole tensors and the configuration beside them."""
    pieces, merged = scratch / "pieces", scratch / "merged"
    pieces.mkdir()
    names: set[str] = set()
    for file in source.glob(PIECES):
        (pieces / file.name).symlink_to(file.resolve())
        with safe_open(file, framework="pt") as opened:
            names |= set(opened.keys())
    merged.mkdir()
    consolidate_safetensors_files(str(pieces), str(merged), dict.fromkeys(names, 1))  # all into file 1
    for file in source.glob("*.json"):
        if not file.name.endswith(".index.json"):
            shutil.copy(file, merged / file.name)
    return merged


def main(argv: Sequence[str] | None = None) -> int:
    """Export; a known problem is one line and status 2."""
    parser = argparse.ArgumentParser(prog="python -m trainers.export", description="Copy a trained model.")
    parser.add_argument("--from", dest="source", type=Path, required=True, help="folder of the model")
    parser.add_argument("--to", type=Path, required=True, help="new folder")
    arguments = parser.parse_args(argv)
    try:
        export(arguments.source, arguments.to)
    except (OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
