"""Commands about configurations: init, validate, variants, show, diff. None of them needs a result or a GPU.

Where there are results, `diff` also says what the change did (`ablation.show.effects`).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ablation.cli.common import open_store, overrides_of
from ablation.config.names import suggest
from ablation.config.settings import Settings, load_settings
from ablation.config.study import Change, Study, Variant
from ablation.config.variant_tree import in_natural_order, walk
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.contract.stage_folder import DATABASE

if TYPE_CHECKING:
    from ablation.plan.plan_file import PlannedVariant

CONFIGS = Path("configs")


def settings_of(arguments: argparse.Namespace, **more: object) -> Settings:
    """Return the settings for `--config KEY=VALUE ...`, `--scale S`, and `more` where given. Raises ConfigError."""
    given = {key: str(value) for key, value in {"scale": arguments.scale, **more}.items() if value is not None}
    return load_settings(overrides_of(arguments.config) | given)


def stored_study(arguments: argparse.Namespace, study: str) -> tuple[str, list["PlannedVariant"]] | None:
    """Return the title and variants of a study that exists only in the results, such as an imported one; else None.

    Raises ConfigError if there is no project and the results lack the study.
    """
    project = CONFIGS.exists()
    if project and (CONFIGS / "studies" / study / "_study.yaml").is_file():
        return None
    results = settings_of(arguments).results if project else Path("results")  # where `import` puts them
    if not (results / DATABASE).exists():
        return None
    with open_store(results) as store:
        if project and study not in store.studies():
            return None
        return store.study(study).title, store.variants(study, helpers=True)


def tree(variants: "Sequence[Variant | PlannedVariant]", more: Callable[[Any], list[str]]) -> Iterator[str]:
    """Yield the lines of the variant tree: each variant, its changes and its `more` lines; confounded ones are marked.

    `more` takes a variant of the kind that is given, so its argument is Any.
    """
    named = {variant.name: variant for variant in variants}
    for place in walk({name: variant.parent for name, variant in named.items()}, in_natural_order):
        variant, indent = named[place.name], "  " * place.depth
        count = len(variant.factors)
        flag = f"  [confounded: {count} factors]" if count > 1 and variant.parent is not None else ""
        yield f"{indent}{place.name}{flag}"
        yield from (f"{indent}    {line}" for line in (*map(describe, variant.changes), *more(variant)))


def describe(change: Change) -> str:
    """Return `key: old -> new`, and why the change cannot have an effect, if that is known."""
    note = f"  [no effect: {change.no_effect}]" if change.no_effect else ""
    note += f"  [a part has no effect: {change.idle_part}]" if change.idle_part else ""
    return f"{change.key}: {in_yaml(change.old)} -> {in_yaml(change.new)}{note}"


def named_pair(command: str, arguments: argparse.Namespace) -> tuple[str | None, tuple[str, str]]:
    """Return the study that A, B or `--study` names, or None, and the names of both variants. Raises ConfigError."""
    names = [name.rpartition("/")[::2] for name in (arguments.a, arguments.b)]
    given = list(dict.fromkeys(study for study in (arguments.study, *(study for study, _ in names)) if study))
    if len(given) > 1:
        raise ConfigError(command, " and ".join(given), None, "name two studies", "compare variants of one study")
    return given[0] if given else None, (names[0][1], names[1][1])


def study_of_pair(
    settings: Settings, only: str | None, wanted: tuple[str, str], arguments: argparse.Namespace
) -> Study:
    """Return the study of two variants: the one that was named, or the only one that has both. Raises ConfigError."""
    return study_named(settings, only or study_with(settings, *wanted), arguments)


def study_named(settings: Settings, name: str, arguments: argparse.Namespace) -> Study:
    """Return one study, even if the settings do not list it, without reading any other."""
    return load_studies(settings_of(arguments, studies=name, scale=settings.scale))[name]


def studies_having(settings: Settings, variants: Sequence[str], study: str | None = None) -> list[str]:
    """Return the studies (or only `study`) that have a configuration file for each of the variants."""
    folders = sorted(path.parent for path in settings.configs.glob("studies/*/_study.yaml"))
    named = [folder for folder in folders if study in (None, folder.name)]
    return [folder.name for folder in named if all((folder / f"{name}.yaml").is_file() for name in variants)]


def study_with(settings: Settings, *variants: str) -> str:
    """Return the only study that has all these variants, among the settings' studies or else among all."""
    having = studies_having(settings, variants)
    listed = [name for name in having if name in settings.studies] or having
    if len(listed) == 1:
        return listed[0]
    if len(settings.studies) == 1:
        return next(iter(settings.studies))  # which suggests the intended name
    place, shown, verb = settings.configs / "studies", " and ".join(variants), "is" if len(variants) == 1 else "are"
    if listed:
        remedy = f"name the study: {', '.join(f'{name}/{variants[0]}' for name in listed)}"
        raise ConfigError(place, shown, None, f"{verb} in {len(listed)} studies", remedy)
    for variant in variants:
        if not studies_having(settings, [variant]):
            everywhere = sorted({path.stem for path in place.glob("*/[!_]*.yaml")})
            raise ConfigError(place, variant, None, "no study has a variant of this name", suggest(variant, everywhere))
    raise ConfigError(place, shown, None, "no study has both variants", "compare variants of one study")


def in_yaml(value: Any) -> str:
    """Return a value on one line, as the configuration files would write it."""
    if isinstance(value, float):
        return repr(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
