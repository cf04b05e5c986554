"""The commands `validate`, `variants`, `show` and `diff`, which need neither results nor a GPU.

If there are results, `diff` also prints the effect of the change (`ablation.show.effects`).
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ablation.cli.common import add_shared, open_store, overrides_of, print_json
from ablation.config import dotted
from ablation.config.names import suggest
from ablation.config.settings import Settings, load_settings
from ablation.config.study import Change, Study, Variant, diff
from ablation.config.variant_tree import in_natural_order, walk
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.contract.stage_folder import CHECKS, DATABASE

if TYPE_CHECKING:
    from ablation.plan.plan_file import Plan, PlannedVariant

CONFIGS = Path("configs")


def settings_of(arguments: argparse.Namespace, **more: object) -> Settings:
    """Return the settings, overridden by `--config`, `--scale` and the values of `more` that are not None.

    Raises ConfigError if a setting is not valid.
    """
    given = {key: str(value) for key, value in {"scale": arguments.scale, **more}.items() if value is not None}
    return load_settings(overrides_of(arguments.config) | given)


def stored_study(arguments: argparse.Namespace, study: str) -> tuple[str, list["PlannedVariant"]] | None:
    """Return the title and the variants of a study that exists only in the results, such as an imported one.

    Return None for a study of the project, or without results. Raises ConfigError if there is no project and the
    results do not contain the study.
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
        found = store.study(study).title, store.variants(study, helpers=True)
    _refuse_unused(arguments, results, f"{study} is")
    return found


def _refuse_unused(arguments: argparse.Namespace, results: Path, they_are: str) -> None:
    """Raise ConfigError for options that are ignored if variants are read from the results."""
    given = {"--scale": arguments.scale, "--config": None if CONFIGS.exists() else arguments.config}
    if option := next((name for name, value in given.items() if value), None):
        problem = f"works only for the configurations of a project, but {they_are} read from the results"
        raise ConfigError(results, option, None, problem, "leave it out")


def tree(variants: "Sequence[Variant | PlannedVariant]", more: Callable[[Any], list[str]]) -> Iterator[str]:
    """Yield the lines of the variant tree: each variant, its changes, and what `more` returns for the variant.

    Confounded variants are marked. The argument of `more` is one of `variants`.
    """
    named = {variant.name: variant for variant in variants}
    for place in walk({name: variant.parent for name, variant in named.items()}, in_natural_order):
        variant, indent = named[place.name], "  " * place.depth
        count = len(variant.factors)
        flag = f"  [confounded: {count} factors]" if count > 1 and variant.parent is not None else ""
        yield f"{indent}{place.name}{flag}"
        yield from (f"{indent}    {line}" for line in (*map(describe, variant.changes), *more(variant)))


def describe(change: Change) -> str:
    """Return a change as `key: old -> new`, with the reason if the change, or a part of it, cannot have an effect."""
    note = f"  [no effect: {change.no_effect}]" if change.no_effect else ""
    note += f"  [a part of the change has no effect: {change.idle_part}]" if change.idle_part else ""
    return f"{change.key}: {in_yaml(change.old)} -> {in_yaml(change.new)}{note}"


def named_pair(command: str, arguments: argparse.Namespace) -> tuple[str | None, tuple[str, str]]:
    """Return the study that A, B or `--study` names (None if none does), and the names of the two variants.

    Raises ConfigError if several studies are named.
    """
    names = [name.rpartition("/")[::2] for name in (arguments.a, arguments.b)]
    given = list(dict.fromkeys(study for study in (arguments.study, *(study for study, _ in names)) if study))
    if len(given) > 1:
        raise ConfigError(command, " and ".join(given), None, "are different studies", "name variants of one study")
    return given[0] if given else None, (names[0][1], names[1][1])


def study_named(settings: Settings, name: str, arguments: argparse.Namespace) -> Study:
    """Read one study at the scale of the settings, even if the settings do not list it."""
    return load_studies(settings_of(arguments, studies=name, scale=settings.scale))[name]


def studies_having(settings: Settings, variants: Sequence[str], study: str | None = None) -> list[str]:
    """Return the names of the studies, or of `study` alone, that have a file for each of these variants."""
    folders = sorted(path.parent for path in settings.configs.glob("studies/*/_study.yaml"))
    named = [folder for folder in folders if study in (None, folder.name)]
    return [folder.name for folder in named if all((folder / f"{name}.yaml").is_file() for name in variants)]


def study_with(settings: Settings, *variants: str) -> str:
    """Return the name of the only study that has all these variants; studies in the settings come before others.

    If there is none, return the only study in the settings. Raises ConfigError if the settings have several studies, or
    if several have all these variants.
    """
    having = studies_having(settings, variants)
    listed = [name for name in having if name in settings.studies] or having
    if len(listed) == 1:
        return listed[0]
    if len(settings.studies) == 1:
        return next(iter(settings.studies))  # reading its variants suggests the intended name
    place, shown, verb = settings.configs / "studies", " and ".join(variants), "is" if len(variants) == 1 else "are"
    if listed:
        remedy = f"name the study: {', '.join(f'{name}/{variants[0]}' for name in listed)}"
        raise ConfigError(place, shown, None, f"{verb} in {len(listed)} studies", remedy)
    for variant in variants:
        if not studies_having(settings, [variant]):
            everywhere = sorted({path.stem for path in place.glob("*/[!_]*.yaml")})
            problem = "no study has a variant with this name"
            raise ConfigError(place, variant, None, problem, suggest(variant, everywhere))
    raise ConfigError(place, shown, None, "no study has both variants", "name variants of one study")


def in_yaml(value: Any) -> str:
    """Return a configuration value as YAML on one line."""
    if isinstance(value, float):
        return repr(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()


def declare_validate(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `validate`."""
    parser.description = "Check every variant of every study and count the jobs. This needs neither results nor a GPU."
    add_shared(parser, "--scale", "--config", "--json")
    parser.add_argument("--write-schema", action="store_true", help="also write configs/schema/*.json for editors")


def run_validate(arguments: argparse.Namespace) -> int:
    """Check all variants; print a line for each study. The exit status is 1 if the grid would refuse a stage."""
    from ablation.plan.build import build_plan
    from ablation.plan.checks import pool_problems

    settings = settings_of(arguments)
    if arguments.write_schema:
        from ablation.config.schema import write_schemas

        for path in write_schemas(load_studies(settings).values(), settings.configs / "schema"):
            if not arguments.json:
                print(f"wrote {path}")
    plan = build_plan(settings)
    rows: list[dict[str, Any]] = []
    for study in plan.studies.values():
        stages = plan.selected(study.name)
        count = sum(stage.study == study.name for stage in stages)
        variants = len(study.variants)
        refused = [f"{problem.problem}; {problem.remedy}" for problem in pool_problems(plan, stages)]
        sizes = {"variants": variants, "runs": variants * len(settings.seeds_of(study.name)), "stages": count}
        rows.append({"study": study.name, **sizes, "assets": len(stages) - count, "refused": refused})
    unlogged = list(_unlogged(plan))
    margins = [(study.name, study.analysis.margin or 0.0) for study in plan.content.studies]
    notes = [
        f"{name}: margin {stated(margin)} allows any change of a metric between 0 and 1, so `ablation gate` refuses it "
        "for such a metric; state a smaller margin"
        for name, margin in margins
        if margin >= 1
    ]
    if arguments.json:
        print_json("validate", rows, scale=settings.scale, unlogged=unlogged, notes=notes)
    else:
        for row in rows:
            *counts, assets = (counted(row[f"{noun}s"], noun) for noun in ("variant", "run", "stage", "asset"))
            print(f"{row['study']}: {', '.join(counts)} and {assets} at scale {settings.scale}")
            for problem in row["refused"]:
                print(f"    the grid would refuse this study: {problem}")
        for line in (*unlogged, *(f"note: {note}" for note in notes)):
            print(line)
    return int(any(row["refused"] for row in rows))


def _unlogged(plan: "Plan") -> Iterator[str]:
    """Yield a line for each metric or subset that a study names but no run has logged; nothing without results."""
    results = plan.settings.results
    database = next((path for path in (results / CHECKS / DATABASE, results / DATABASE) if path.exists()), None)
    if database is None:
        return
    from ablation.store.database import Store  # late: without results nothing of this is needed
    from ablation.store.unlogged import find_unlogged

    with Store(database) as store:
        for study in plan.content.studies:
            for problem in find_unlogged(store, study.name, study) if study.name in store.studies() else ():
                yield f"{study.name}: {problem}"


def declare_variants(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `variants`."""
    parser.description = "List a study's variants as a tree: what each one changes, and why."
    add_shared(parser, "--scale", "--config")
    parser.add_argument("study", metavar="STUDY")
    add_shared(parser, "--json")


def run_variants(arguments: argparse.Namespace) -> int:
    """Print the variant tree of a study."""
    variants: Sequence[Variant | PlannedVariant]
    if stored := stored_study(arguments, arguments.study):
        title, variants = stored
    else:
        study = study_named(settings_of(arguments), arguments.study, arguments)
        title, variants = study.written.title, list(study.variants.values())
    if arguments.json:
        rows = [
            {"variant": each.name, "parent": each.parent, "why": each.why, "factors": each.factors}
            | {"changes": [change.model_dump(mode="json", by_alias=True) for change in each.changes]}
            for each in variants
        ]
        print_json("variants", rows, study=arguments.study)
        return 0
    print(f"{arguments.study}: {title}")
    print("\n".join(tree(variants, lambda variant: [f"why: {variant.why}"])))
    return 0


def declare_show(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `show`."""
    parser.description = (
        "Print the resolved configuration of a variant as YAML, and mark values that differ from their defaults."
    )
    add_shared(parser, "--scale", "--config")
    text = "STUDY/ may be left out if only one study has the variant"
    parser.add_argument("variant", metavar="STUDY/VARIANT", help=text)


def run_show(arguments: argparse.Namespace) -> int:
    """Print one configuration as YAML."""
    study_name, _, name = arguments.variant.rpartition("/")
    if study_name and (stored := stored_study(arguments, study_name)):
        configs = {variant.name: variant.resolved for variant in stored[1]}
        if name not in configs:
            raise ConfigError("results", study_name, name, "is not a variant of this study", suggest(name, configs))
        print(f"# {study_name}/{name}, as recorded in the results")
        print(*_marked(configs[name], configs[name]), sep="\n")
        return 0
    settings = settings_of(arguments)
    study = study_named(settings, study_name or study_with(settings, name), arguments)
    variant = study.variant(name)
    config = variant.values if arguments.scale else variant.declared
    size = (
        f"at scale {settings.scale}" if arguments.scale else "as declared (for the values at a scale, pass --scale S)"
    )
    defaults_of = study.written.config or study.file
    print(f"# {study.name}/{variant.name}, {size}. `differs` marks values that are not the defaults of {defaults_of}")
    print(*_marked(config, study.config_model().model_dump(mode="json")), sep="\n")
    return 0


def _marked(config: Mapping[str, Any], defaults: Any, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a configuration as YAML, with a comment at each leaf that differs from its default."""
    for key, value in config.items():
        indent = "  " * depth
        default = dotted.get(defaults, key, None)
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _marked(value, default, depth + 1)
        else:
            mark = "" if value == default else f"  # differs: default {in_yaml(default)}"
            yield f"{indent}{key}: {in_yaml(value)}{mark}"


def declare_diff(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `diff`."""
    parser.description = "Show what variant B changes relative to variant A and, if there are results, the effect."
    add_shared(parser, "--scale", "--config", "a", "b", "--study", "--results", "--json")


def run_diff(arguments: argparse.Namespace) -> int:
    """Print what B changes relative to A and, if there are results, the effect.

    Variants without a configuration file, such as those of imported runs, are looked up in the results.
    """
    only, wanted = named_pair("diff", arguments)
    settings = settings_of(arguments) if CONFIGS.exists() else None
    results = arguments.results or (settings.results if settings else Path("results"))
    has_results = (results / DATABASE).exists()
    found, why = None, None
    if has_results and not (settings and all(studies_having(settings, [name], only) for name in wanted)):
        from ablation.show.effects import stored_effect  # late: without results nothing of this is needed

        found = stored_effect(results, only, *wanted)
        if found is None and settings is None:
            problem = "no study in the results has both variants"
            remedy = "run `ablation verdicts` to list the variants that are compared"
            raise ConfigError(results, " and ".join(wanted), None, problem, remedy)
    if found is not None:
        _refuse_unused(arguments, results, f"{' and '.join(wanted)} are")
        changes, lines = found.changes, [*found.changed, *found.lines]
    else:
        settings = settings or settings_of(arguments)  # which refuses a folder without a project
        study = study_named(settings, only or study_with(settings, *wanted), arguments)
        differing = diff(study, *wanted, scaled=bool(arguments.scale))
        changes = [change.model_dump(by_alias=True) for change in differing]
        why = study.variants[wanted[1]].why
        lines = [*(map(describe, differing) if differing else ["no difference"]), f"why {wanted[1]}: {why}"]
        if arguments.results or has_results:
            from ablation.show.effects import declared_effect

            found = declared_effect(results, study, settings.scale, *wanted)
            lines += found.lines
    if arguments.json:
        print_json("diff", changes, why=why, effect=found.effect if found else None)
    else:
        print("\n".join(lines))
    return 0
