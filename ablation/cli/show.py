"""The command `show`: the resolved configuration of one variant."""

import argparse
from collections.abc import Iterator
from typing import Any

from ablation.cli.common import add_configs
from ablation.cli.configs import in_yaml, settings_of, stored_study, study_named, study_with
from ablation.config import dotted
from ablation.config.names import suggest
from ablation.contract.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Print the resolved configuration of a variant as YAML; values that are not defaults are marked."
    )
    add_configs(parser)
    parser.add_argument(
        "variant", metavar="STUDY/VARIANT", help="STUDY/ may be left out if only one study has the variant"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one configuration as YAML."""
    study_name, _, name = arguments.variant.rpartition("/")
    if study_name and (stored := stored_study(arguments, study_name)):
        if (config := {variant.name: variant.resolved for variant in stored[1]}.get(name)) is None:
            known = suggest(name, [variant.name for variant in stored[1]])
            raise ConfigError("results", study_name, name, "is not a variant of this study", known)
        print(f"# {study_name}/{name}, as recorded in the results")
        for line in _marked(config, config):
            print(line)
        return 0
    settings = settings_of(arguments)
    study = study_named(settings, study_name or study_with(settings, name), arguments)
    variant = study.variant(name)
    config = variant.values if arguments.scale else variant.declared
    size = f"at scale {settings.scale}" if arguments.scale else "as declared; --scale S shows the values at a scale"
    defaults_of = study.written.config or study.file
    print(f"# {study.name}/{variant.name}, {size}. `differs` marks values other than {defaults_of}'s defaults")
    defaults = study.config_model().model_dump(mode="json")
    for line in _marked(config, defaults):
        print(line)
    return 0


def _marked(config: dict[str, Any], defaults: Any, depth: int = 0) -> Iterator[str]:
    """Yield YAML lines, with a comment at each leaf that differs from its default."""
    for key, value in config.items():
        indent = "  " * depth
        default = dotted.get(defaults, key, None)
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _marked(value, default, depth + 1)
        else:
            mark = "" if value == default else f"  # differs: default {in_yaml(default)}"
            yield f"{indent}{key}: {in_yaml(value)}{mark}"
