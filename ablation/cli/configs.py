"""Commands about configurations: init, validate, variants, show, diff. None of them needs a result or a GPU.

Where there are results, `diff` also says what the change did (`ablation.cli.effects`).
"""

import argparse
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ablation.cli.common import opened, overrides_of, print_json
from ablation.config import dotted
from ablation.config.lineage import in_natural_order, walk
from ablation.config.names import suggest
from ablation.config.settings import Settings, load_settings
from ablation.config.study import Change, Study, Variant, diff
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.contract.reading import counted
from ablation.contract.stage_folder import CHECKS, DATABASE

if TYPE_CHECKING:
    from ablation.plan.plan_file import Plan, PlannedVariant

_CONFIGS = Path("configs")
_TEMPLATE = Path(__file__).with_name("new_project")
_PROFILES = "profiles"


def run_init(arguments: argparse.Namespace) -> int:
    """Write a project: configurations, one study of one command, the command's program, and a Snakefile."""
    from ablation.plan.start import WORKFLOW

    folder: Path = arguments.folder
    files = {_named(path): path for path in sorted(_TEMPLATE.rglob("*")) if path.is_file() and path.suffix != ".pyc"}
    profiles = Path(WORKFLOW) / _PROFILES
    files |= {
        Path("workflow") / _PROFILES / path.relative_to(profiles): path
        for path in sorted(profiles.rglob("*"))
        if path.is_file()
    }
    if folder.exists() and not folder.is_dir():
        raise ConfigError(folder, "", None, "is not a folder", "name a new one")
    for name in (Path("configs"), Path("workflow"), Path(_PROFILES), *files):
        if os.path.lexists(folder / name):
            problem = "is there already, and nothing is written over"
            raise ConfigError(folder / name, "", None, problem, "name another folder, or move it")
    try:
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
        (folder / _PROFILES).symlink_to(Path("workflow") / _PROFILES)
    except OSError as error:
        raise ConfigError(folder, "", None, f"cannot be written ({error.strerror})", "name another folder") from None
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"wrote {folder}: the study example, in configs/studies/example; run it with `{there}snakemake --cores 2`")
    return 0


def _named(path: Path) -> Path:
    """Return where a file of the template goes; a `.gitignore` of its own would be one of this repository."""
    name = path.relative_to(_TEMPLATE)
    return Path(".gitignore") if name == Path("gitignore") else name


def settings_of(arguments: argparse.Namespace, **more: object) -> Settings:
    """Return the settings for `--config KEY=VALUE ...`, `--scale S`, and `more` where given. Raises ConfigError."""
    given = {key: str(value) for key, value in {"scale": arguments.scale, **more}.items() if value is not None}
    return load_settings(overrides_of(arguments.config) | given)


def run_validate(arguments: argparse.Namespace) -> int:
    """Check everything; print a line per study."""
    from ablation.plan.build import build_plan
    from ablation.plan.checks import pool_problems
    from ablation.plan.fit import fullest, needs_of, problem_of

    settings = settings_of(arguments)
    if arguments.write_schema:
        from ablation.config.schema import write_schemas

        for path in write_schemas(load_studies(settings).values(), settings.configs / "schema"):
            print(f"wrote {path}")
    plan = build_plan(settings)
    for study in plan.studies.values():
        stages = plan.selected(study.name)
        own = sum(stage.study == study.name for stage in stages)
        runs = len(study.variants) * len(settings.seeds_of(study.name))
        print(
            f"{study.name}: {counted(len(study.variants), 'variant')}, {counted(runs, 'run')}, "
            f"{counted(own, 'stage')} and {counted(len(stages) - own, 'asset')} at scale {settings.scale}"
        )
        needs = needs_of(plan, stages, device_memory=settings.device_memory)
        unfit = filter(None, map(problem_of, fullest(needs)))
        for problem in (*pool_problems(plan, stages), *unfit):
            print(f"    will be refused: {problem.problem}; {problem.remedy}")
    _print_unlogged(plan)
    return 0


def _print_unlogged(plan: "Plan") -> None:
    """Print which names in the studies nothing has logged, where a check or the grid has results."""
    results = plan.settings.results
    database = next((path for path in (results / CHECKS / DATABASE, results / DATABASE) if path.exists()), None)
    if database is None:
        return
    from ablation.store.database import Store  # late: without results nothing of this is needed
    from ablation.store.unlogged import find_unlogged

    with Store(database) as store:
        for study in plan.content.studies:
            for problem in find_unlogged(store, study.name, study) if study.name in store.studies() else ():
                print(f"{study.name}: {problem}")


def run_variants(arguments: argparse.Namespace) -> int:
    """Print the lineage of a study."""
    variants: Sequence[Variant | PlannedVariant]
    if stored := _stored(arguments, arguments.study):
        title, variants = stored
    else:
        study = _study(settings_of(arguments), arguments.study, arguments)
        title, variants = study.written.title, list(study.variants.values())
    if arguments.json:
        print_json("variants", map(_row, variants), study=arguments.study)
        return 0
    print(f"{arguments.study}: {title}")
    print("\n".join(tree(variants, lambda variant: [f"why: {variant.why}"])))
    return 0


def _stored(arguments: argparse.Namespace, study: str) -> tuple[str, list["PlannedVariant"]] | None:
    """Return title and variants of a study that only the results have, such as an imported one; None of any other.

    Raises ConfigError where there is no project and the results lack the study.
    """
    project = _CONFIGS.exists()
    if project and (_CONFIGS / "studies" / study / "_study.yaml").is_file():
        return None
    results = settings_of(arguments).results if project else Path("results")  # where `import` puts them
    if not (results / DATABASE).exists():
        return None
    with opened(results) as store:
        if project and study not in store.studies():
            return None
        return store.study(study).title, store.variants(study)


def _row(variant: "Variant | PlannedVariant") -> dict[str, Any]:
    changes = [change.model_dump(mode="json", by_alias=True) for change in variant.changes]
    names = {"variant": variant.name, "parent": variant.parent, "why": variant.why}
    return names | {"factors": variant.factors, "changes": changes}


def tree(variants: "Sequence[Variant | PlannedVariant]", more: Callable[[Any], list[str]]) -> Iterator[str]:
    """Yield the lineage: each variant, under it what changed and `more` lines; `confounded` if several factors did.

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
    """Return `key: old -> new`, and why it cannot matter where that is known."""
    note = f"  [no effect: {change.no_effect}]" if change.no_effect else ""
    return f"{change.key}: {_yaml(change.old)} -> {_yaml(change.new)}{note}"


def run_show(arguments: argparse.Namespace) -> int:
    """Print one configuration as YAML."""
    study_name, _, name = arguments.variant.rpartition("/")
    if study_name and (stored := _stored(arguments, study_name)):
        if (config := {variant.name: variant.resolved for variant in stored[1]}.get(name)) is None:
            known = f"one of {', '.join(variant.name for variant in stored[1])}"
            raise ConfigError("results", study_name, name, "has no such variant", known)
        print(f"# {study_name}/{name}, as the results have it")
        for line in _marked(config, config):
            print(line)
        return 0
    settings = settings_of(arguments)
    study = _study(settings, study_name or _study_with(settings, name), arguments)
    variant = study.variant(name)
    config = variant.values if arguments.scale else variant.declared
    size = f"at scale {settings.scale}" if arguments.scale else "as declared; --scale S shows it as sized"
    print(f"# {study.name}/{variant.name}, {size}. # differs: not the default of {study.written.config or study.file}")
    defaults = study.config_model().model_dump(mode="json")
    for line in _marked(config, defaults):
        print(line)
    return 0


def _marked(config: dict[str, Any], defaults: Any, depth: int = 0) -> Iterator[str]:
    """Yield YAML lines; a leaf that differs from the default says so in a comment."""
    for key, value in config.items():
        indent = "  " * depth
        default = dotted.get(defaults, key, None)
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _marked(value, default, depth + 1)
        else:
            mark = "" if value == default else f"  # differs: default {_yaml(default)}"
            yield f"{indent}{key}: {_yaml(value)}{mark}"


def run_diff(arguments: argparse.Namespace) -> int:
    """Print what B changes with respect to A and, where there are results, the effect.

    Variants that no configuration declares, such as imported runs, are looked for in the results.
    """
    only, wanted = named_pair("diff", arguments)
    settings = settings_of(arguments) if _CONFIGS.exists() else None
    results = arguments.results or (settings.results if settings else Path("results"))
    known = (results / DATABASE).exists()
    if known and not (settings and all(_having(settings, [name], only) for name in wanted)):
        from ablation.cli.effects import tell_stored  # late: without results nothing of this is needed

        if told := tell_stored(results, only, *wanted):
            return _print_diff(arguments, told.changes, [*told.changed, *told.lines], None, told.effect)
        if settings is None:
            problem, remedy = "no study of the results has both", "`ablation verdicts` names its variants"
            raise ConfigError(results, " and ".join(wanted), None, problem, remedy)
    settings = settings or settings_of(arguments)  # which says that there is no project
    study = study_of_pair(settings, only, wanted, arguments)
    changes = diff(study, *wanted, scaled=bool(arguments.scale))
    why, effect = study.variants[wanted[1]].why, None
    lines = [*(map(describe, changes) if changes else ["no difference"]), f"why {wanted[1]}: {why}"]
    if arguments.results or known:
        from ablation.cli.effects import tell_effect

        told = tell_effect(results, study, settings.scale, *wanted)
        effect, lines = told.effect, [*lines, *told.lines]
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


def named_pair(command: str, arguments: argparse.Namespace) -> tuple[str | None, tuple[str, str]]:
    """Return the study that A, B or `--study` names, if one does, and both variants. Raises ConfigError."""
    names = [name.rpartition("/")[::2] for name in (arguments.a, arguments.b)]
    given = list(dict.fromkeys(study for study in (arguments.study, *(study for study, _ in names)) if study))
    if len(given) > 1:
        raise ConfigError(command, " and ".join(given), None, "are two studies", "compare variants of one study")
    return given[0] if given else None, (names[0][1], names[1][1])


def study_of_pair(
    settings: Settings, only: str | None, wanted: tuple[str, str], arguments: argparse.Namespace
) -> Study:
    """Return the study of two variants: the one that was named, or the only one that has both. Raises ConfigError."""
    return _study(settings, only or _study_with(settings, *wanted), arguments)


def _study(settings: Settings, name: str, arguments: argparse.Namespace) -> Study:
    """Return one study, whether the settings list it or not, and read no other."""
    return load_studies(settings_of(arguments, studies=name, scale=settings.scale))[name]


def _having(settings: Settings, variants: Sequence[str], study: str | None = None) -> list[str]:
    """Return the studies, or the one of this name, with a configuration file of each of the variants."""
    folders = sorted(path.parent for path in settings.configs.glob("studies/*/_study.yaml"))
    named = [folder for folder in folders if study in (None, folder.name)]
    return [folder.name for folder in named if all((folder / f"{name}.yaml").is_file() for name in variants)]


def _study_with(settings: Settings, *variants: str) -> str:
    """Return the only study that has all these variants: among the settings' studies, else among all."""
    having = _having(settings, variants)
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
        if not _having(settings, [variant]):
            everywhere = sorted({path.stem for path in place.glob("*/[!_]*.yaml")})
            raise ConfigError(place, variant, None, "no study has such a variant", suggest(variant, everywhere))
    raise ConfigError(place, shown, None, "no study has both", "compare variants of one study")


def _yaml(value: Any) -> str:
    """Return a value on one line, as the configuration files would write it."""
    if isinstance(value, float):
        return repr(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()
