"""Commands about configurations: validate, variants, show, diff. None of them needs a result or a GPU."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from contract.errors import ConfigError
from tracker.config import dotted
from tracker.config.changes import diff
from tracker.config.lineage import in_natural_order, walk
from tracker.config.schema import write_schemas
from tracker.config.settings import Settings, load_settings, suggest
from tracker.config.study import Change, Study, Variant
from tracker.config.variants import load_studies
from tracker.plan.build import build_plan


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the parser of `python -m tracker`."""
    validate = _add(subparsers, "validate", _validate, "check every variant of every study, and count jobs")
    validate.add_argument("--write-schema", action="store_true", help="also write configs/schema/*.json for editors")

    variants = _add(subparsers, "variants", _variants, "the lineage of a study: what each variant changes, and why")
    variants.add_argument("study", metavar="STUDY")

    show = _add(subparsers, "show", _show, "the resolved configuration of one variant, as YAML")
    show.add_argument("variant", metavar="STUDY/VARIANT", help="STUDY/ may be left out if one study is configured")

    compare = _add(subparsers, "diff", _diff, "exactly what changes from variant A to variant B")
    compare.add_argument("a", metavar="A", help="STUDY/VARIANT, or VARIANT")
    compare.add_argument("b", metavar="B", help="STUDY/VARIANT, or VARIANT")
    compare.add_argument("--study", help="the study of both, instead of STUDY/")


def _add(subparsers: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.add_argument("--scale", help="as sized by configs/scales/SCALE.yaml (show, diff: as declared by default)")
    parser.add_argument(
        "--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="as for snakemake"
    )
    parser.add_argument("--configs", type=Path, default=Path("configs"), help="folder of the configurations")
    parser.set_defaults(run=run)
    return parser


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings for `--config KEY=VALUE ... --scale S`. Raises ConfigError."""
    overrides: dict[str, str] = {}
    for pair in arguments.config:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("--config", pair, None, "is not KEY=VALUE", "write, for example, scale=smoke")
        overrides[key] = value.strip()
    if arguments.scale:
        overrides["scale"] = arguments.scale
    return load_settings(overrides, configs=arguments.configs)


def _validate(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.write_schema:
        for path in write_schemas(load_studies(settings).values(), settings.configs / "schema"):
            print(f"wrote {path}")
    plan = build_plan(settings)
    for study in plan.studies.values():
        stages = plan.selected(study.name)
        own = sum(stage.study == study.name for stage in stages)
        runs = len(study.variants) * len(settings.seeds)
        print(
            f"{study.name}: {_count(len(study.variants), 'variant')}, {_count(runs, 'run')}, {_count(own, 'stage')} "
            f"and {_count(len(stages) - own, 'asset')} at scale {settings.scale}"
        )
    return 0


def _variants(arguments: argparse.Namespace) -> int:
    study = _study(settings_of(arguments), arguments.study, arguments)
    print(f"{study.name}: {study.written.title}")
    for line in tree(study):
        print(line)
    return 0


def tree(study: Study) -> Iterator[str]:
    """Yield the lineage: each variant, under it what changed and why; `confounded` if several factors did."""
    parents = {variant.name: variant.parent for variant in study.variants.values()}
    for place in walk(parents, in_natural_order):
        variant, indent = study.variants[place.name], "  " * place.depth
        count = len(variant.factors)
        flag = f"  [confounded: {count} factors]" if count > 1 else ""
        yield f"{indent}{place.name}{flag}"
        for change in variant.changes:
            yield f"{indent}    {describe(change)}"
        yield f"{indent}    why: {variant.why}"


def describe(change: Change) -> str:
    """Return `key: old -> new`, and why it cannot matter where that is known."""
    note = f"  [no effect: {change.no_effect}]" if change.no_effect else ""
    return f"{change.key}: {_yaml(change.old)} -> {_yaml(change.new)}{note}"


def _show(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    study, variant = _variant(settings, arguments.variant, arguments)
    config = variant.values if arguments.scale else variant.declared
    size = f"at scale {settings.scale}" if arguments.scale else "as declared; --scale S shows it as sized"
    print(f"# {study.name}/{variant.name}, {size}. # differs: not the default of {study.written.config}")
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


def _diff(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    study, a = _variant(settings, arguments.a, arguments)
    other, b = _variant(settings, arguments.b, arguments)
    if study.name != other.name:
        remedy = "compare variants of one study"
        raise ConfigError("diff", arguments.b, None, f"is of another study than {arguments.a}", remedy)
    changes = diff(study, a.name, b.name, scaled=bool(arguments.scale))
    for change in changes:
        print(describe(change))
    if not changes:
        print("no difference")
    print(f"why {b.name}: {b.why}")
    return 0


def _study(settings: Settings, name: str, arguments: argparse.Namespace) -> Study:
    """Return one study, whether the settings list it or not."""
    if name in settings.studies:
        return load_studies(settings)[name]
    overrides = dict(pair.partition("=")[::2] for pair in arguments.config) | {"studies": name, "scale": settings.scale}
    return load_studies(load_settings(overrides, configs=settings.configs))[name]


def _variant(settings: Settings, name: str, arguments: argparse.Namespace) -> tuple[Study, Variant]:
    study_name, slash, variant_name = name.rpartition("/")
    if not slash:
        study_name = getattr(arguments, "study", None) or (settings.studies[0] if len(settings.studies) == 1 else "")
    if not study_name:
        raise ConfigError(
            "tracker", name, None, "names no study", f"write STUDY/{name}, of {', '.join(settings.studies)}"
        )
    study = _study(settings, study_name, arguments)
    if variant_name not in study.variants:
        remedy = suggest(variant_name, study.variants)
        raise ConfigError(study.file.parent, variant_name, None, "there is no such variant", remedy)
    return study, study.variants[variant_name]


def _yaml(value: Any) -> str:
    """Return a value on one line, as the configuration files would say it."""
    if isinstance(value, float):
        return repr(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
