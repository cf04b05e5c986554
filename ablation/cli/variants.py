"""The command `variants`: the variant tree of a study."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ablation.cli.common import add_configs, add_json, print_json
from ablation.cli.configs import settings_of, stored_study, study_named, tree
from ablation.config.study import Variant

if TYPE_CHECKING:
    from ablation.plan.plan_file import PlannedVariant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "List a study's variants as a tree: what each one changes, and why."
    add_configs(parser)
    parser.add_argument("study", metavar="STUDY")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the variant tree of a study."""
    variants: Sequence[Variant | PlannedVariant]
    if stored := stored_study(arguments, arguments.study):
        title, variants = stored
    else:
        study = study_named(settings_of(arguments), arguments.study, arguments)
        title, variants = study.written.title, list(study.variants.values())
    if arguments.json:
        print_json("variants", map(_row, variants), study=arguments.study)
        return 0
    print(f"{arguments.study}: {title}")
    print("\n".join(tree(variants, lambda variant: [f"why: {variant.why}"])))
    return 0


def _row(variant: "Variant | PlannedVariant") -> dict[str, Any]:
    changes = [change.model_dump(mode="json", by_alias=True) for change in variant.changes]
    names = {"variant": variant.name, "parent": variant.parent, "why": variant.why}
    return names | {"factors": variant.factors, "changes": changes}
