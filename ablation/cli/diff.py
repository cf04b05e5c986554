"""The command `diff`: what one variant changes relative to another and, if there are results, the effect."""

import argparse
from pathlib import Path
from typing import Any

from ablation.cli.common import add_configs, add_json, add_pair, print_json
from ablation.cli.configs import CONFIGS, describe, named_pair, settings_of, studies_having, study_of_pair
from ablation.config.study import diff
from ablation.contract.errors import ConfigError
from ablation.contract.stage_folder import DATABASE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Show what variant B changes relative to variant A and, if there are results, the effect."
    add_configs(parser)
    add_pair(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what B changes relative to A and, if there are results, the effect.

    Variants that no configuration declares, such as imported runs, are looked for in the results.
    """
    only, wanted = named_pair("diff", arguments)
    settings = settings_of(arguments) if CONFIGS.exists() else None
    results = arguments.results or (settings.results if settings else Path("results"))
    has_results = (results / DATABASE).exists()
    if has_results and not (settings and all(studies_having(settings, [name], only) for name in wanted)):
        from ablation.show.effects import tell_stored  # late: without results nothing of this is needed

        if effect_lines := tell_stored(results, only, *wanted):
            return _print_diff(
                arguments, effect_lines.changes, [*effect_lines.changed, *effect_lines.lines], None, effect_lines.effect
            )
        if settings is None:
            problem, remedy = "no study in the results has both variants", "run `ablation verdicts` to list them"
            raise ConfigError(results, " and ".join(wanted), None, problem, remedy)
    settings = settings or settings_of(arguments)  # which says that there is no project
    study = study_of_pair(settings, only, wanted, arguments)
    changes = diff(study, *wanted, scaled=bool(arguments.scale))
    why, effect = study.variants[wanted[1]].why, None
    lines = [*(map(describe, changes) if changes else ["no difference"]), f"why {wanted[1]}: {why}"]
    if arguments.results or has_results:
        from ablation.show.effects import tell_effect

        effect_lines = tell_effect(results, study, settings.scale, *wanted)
        effect, lines = effect_lines.effect, [*lines, *effect_lines.lines]
    return _print_diff(arguments, [change.model_dump(by_alias=True) for change in changes], lines, why, effect)


def _print_diff(
    arguments: argparse.Namespace,
    changes: list[dict[str, Any]],
    lines: list[str],
    why: str | None,
    effect: dict[str, Any] | None,
) -> int:
    if arguments.json:
        print_json("diff", changes, why=why, effect=effect)
    else:
        print("\n".join(lines))
    return 0
