"""The command `export`: a model of a run as a Hugging Face folder."""

import argparse
from pathlib import Path

from ablation.cli.common import add_results, results_folder
from ablation.contract.errors import TrackerError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Copy a model of a run as a Hugging Face folder."
    parser.epilog = (
        "examples:\n"
        "  ablation export gad d-final --output DIR                       the final student\n"
        "  ablation export gad d-final --part critic --step 40 --output DIR\n"
        "  ablation export --from results/stages/gspo/reinforce/KEY/checkpoint --hf-model BASE --output DIR"
    )
    add_results(parser)
    add = parser.add_argument
    add("study", metavar="STUDY", nargs="?")
    add("variant", metavar="VARIANT", nargs="?")
    add("--seed", type=int, help="seed of the run (default: the plan's first seed)")
    add("--part", metavar="NAME", help="a model other than the trained one, such as `critic`")
    add("--stage", metavar="STAGE", help="stage that wrote the model (default: the last one that did)")
    add("--step", type=int, help="a step whose checkpoint was kept (keep_checkpoints); default: the end of the stage")
    add("--from", dest="source", type=Path, metavar="DIR", help="export this folder instead of a run")
    add(
        "--hf-model",
        type=Path,
        metavar="DIR",
        help="folder with the config and tokenizer, if they are not beside the weights",
    )
    add(
        "--precision",
        choices=("float32", "bfloat16", "float16"),
        help="type of the exported weights (default: that of the model)",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="a new or empty folder")


def run(arguments: argparse.Namespace) -> int:
    """Copy one model; print where it came from."""
    from ablation.store.export import export, find_model

    if (arguments.source is None) == (arguments.variant is None):
        raise TrackerError("export: name a STUDY and a VARIANT, or a folder with --from")
    model = arguments.source or find_model(
        results_folder(arguments),
        arguments.study,
        arguments.variant,
        arguments.seed,
        part=arguments.part,
        stage=arguments.stage,
        step=arguments.step,
    )
    options = [("--hf-model", arguments.hf_model), ("--precision", arguments.precision)]
    status = export(model, arguments.output, *(word for name, value in options if value for word in (name, str(value))))
    if status == 0:
        print(f"{arguments.output}: exported from {model}")
    return status
