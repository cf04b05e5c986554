"""Write the page of commands (`make docs`; a test compares); make the keys of studies, for the site."""

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # so that `python docs/make_reference.py` finds the trainers

from ablation.cli.parser import GROUPS  # noqa: E402
from ablation.config.schema import study_json_schema  # noqa: E402
from ablation.config.settings import load_settings  # noqa: E402
from ablation.config.variants import load_studies  # noqa: E402
from trainers.assets_config import Asset  # noqa: E402

CONFIGS = DOCS.parent / "configs"
BOUNDS = {"minimum": "≥{}", "exclusiveMinimum": ">{}", "maximum": "≤{}", "exclusiveMaximum": "<{}"}
PLAIN = ("≥0", ">0", "≥1")  # bounds that go without saying
COMMON = ("extends", "why", "label", "gpu")
STEP, COLUMN, WIDTH = 2, 34, 100
KEYS_HEAD = """Made from the config model: every key with its default, meaning and, in parentheses, what
is allowed. Models and data sets are [assets](assets.md).
"""
ASSETS_HEAD = """# Keys of an asset

A model or data set from outside, in every study, made from the config model. Sources are tried in order.
"""


def pages() -> dict[Path, str]:
    """Return path -> text of every page of the repository that is made from code."""
    return {DOCS / "reference/commands.md": command_page()}


COMMANDS_HEAD = """# Commands

Each command prints its options with `--help`; the [site](../index.md#reference) has them on this page.
"""
# The page that shows each command at work.
SHOWN_AT = {
    **dict.fromkeys(("init", "validate"), "how-to/wrap-a-command.md"),
    **dict.fromkeys(("variants", "show", "diff"), "how-to/add-a-variant.md"),
    "prune": "explanation/reruns-and-keys.md",
    **dict.fromkeys(("check", "check-paper"), "how-to/check.md"),
    "status": "tutorials/first-grid.md",
    "add-seeds": "how-to/add-seeds.md",
    "import": "how-to/import.md",
    **dict.fromkeys(("collect", "sql", "export-tables"), "reference/database.md"),
    "merge": "how-to/clusters.md",
    "compare": "how-to/compare.md",
    "verdicts": "explanation/verdicts.md",
    "gate": "how-to/gate.md",
    "nightly": "how-to/nightly.md",
    "explain": "how-to/attribute-effects.md",
    "power": "how-to/choose-seeds.md",
    "audit": "how-to/audit-a-table.md",
    **dict.fromkeys(("try", "campaign"), "how-to/campaigns.md"),
    **dict.fromkeys(("report", "serve", "tables", "figures"), "how-to/read-the-report.md"),
    "trace": "how-to/trace.md",
    "export": "studies/gad.md",
}


def command_page() -> str:
    """Return every command with what it does and where it is shown."""
    lines = [COMMANDS_HEAD]
    for group, commands in GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [f"- [`{name}`](../{SHOWN_AT[name]}): {what}" for name, what in commands.items()] + [""]
    return "\n".join(lines)


def key_pages() -> dict[Path, str]:
    """Return path -> text of the pages of keys."""
    names = sorted(path.parent.name for path in CONFIGS.glob("studies/*/_study.yaml"))
    studies = load_studies(load_settings({"studies": names}, configs=CONFIGS))
    pages = {DOCS / "studies/keys/assets.md": asset_page()}
    models: dict[object, list[str]] = {}  # studies of one config model have one page
    for name, study in studies.items():
        models.setdefault(study.config_model, []).append(name)
    seen: dict[str, tuple[str, Any]] = {}
    for names in sorted(models.values(), key=len, reverse=True):
        pages[DOCS / "studies/keys" / f"{names[0]}.md"] = key_page(names, study_json_schema(studies[names[0]]), seen)
    return pages


def key_page(studies: Sequence[str], schema: Mapping[str, Any], seen: dict[str, tuple[str, Any]]) -> str:
    """Return the keys of a variant file (`study_json_schema`) as commented YAML: default, meaning, what is allowed.

    seen: where keys stand on the pages before, and their defaults, by their definition; maps that studies share are
    described once.
    """
    definitions = schema.get("$defs", {})
    own = {name: field for name, field in schema["properties"].items() if name not in COMMON}
    lines = [f"# Keys of {' and '.join(f'`{name}`' for name in studies)}", "", KEYS_HEAD, "```yaml"]
    here = dict(seen)
    entries = list(_entries(own, definitions, seen=here))
    seen |= {key: (f"{first} of {studies[0]}", values) for key, (first, values) in here.items() if key not in seen}
    return "\n".join([*lines, *entries, "```"]) + "\n"


def asset_page() -> str:
    """Return the keys of a model or data set, which all studies share."""
    schema = Asset.model_json_schema()
    return "\n".join([ASSETS_HEAD, "```yaml", *_entries(schema["properties"], schema["$defs"]), "```"]) + "\n"


def _entries(
    properties: Mapping[str, Any],
    definitions: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    path: str = "",
    seen: dict[str, tuple[str, Any]] | None = None,
) -> Iterator[str]:
    """Yield the lines of a map: each key with its default and a comment, then the keys in it.

    given: values of the map where it is a default itself. seen: definition -> where its keys stand and their defaults.
    """
    given, seen = given or {}, {} if seen is None else seen
    depth = path.count(".")
    for name, field in properties.items():
        default = given.get(name, field.get("default", ...))
        maps, comment = _maps(field), field.get("description", "")
        listed = any({"$ref", "anyOf", "oneOf"}.intersection(option.get("items", ())) for option in _inner(field))
        if "Asset" in maps:
            yield from _line(depth, name, default, f"{comment} ({_type(field, definitions, default)})")
            continue
        if not maps:
            allowed = _type(field, definitions, default)
            told = not allowed or set(allowed.split(", ")) <= set(re.findall(r"[\w+]+", comment))
            yield from _line(depth, name, default, comment if told else f"{comment} ({allowed})")
            continue
        comment = f"Default null. {comment}" if default is None and "null" not in comment else comment
        key = json.dumps([definitions[reference] for reference in maps])
        if key in seen:
            first, values = seen[key]
            differ = {k: v for k, v in (default or values).items() if v != values.get(k)}
            but = f" but {_value(differ)}" if differ else ""
            yield from _line(depth, name, ..., f"{comment} Keys as in {first}{but}.")
            continue
        yield from _line(depth, name, ..., comment)
        values = default if isinstance(default, Mapping) else {}
        tag = next(
            (option["discriminator"]["propertyName"] for option in _inner(field) if "discriminator" in option), ""
        )
        for reference in maps:
            definition = definitions[reference]
            inner = dict(definition["properties"])
            written = inner.pop(tag, {})
            kind = written.get("const", written.get("default"))
            about = definition.get("description", "").split("\n")[0]
            about += f" ({', '.join(written['enum'])})" if "enum" in written else ""
            block = [*_line(depth + 1, tag, kind, about if reference == maps[0] else f"Or: {about}")] if tag else []
            mine = values if kind is None or values.get(tag) == kind else {}
            block += _entries(inner, definitions, mine, f"{path}{name}.", seen)
            if listed:
                block[0] = f"{block[0][: STEP * depth]}- {block[0].lstrip()}"
            yield from block
        if not listed:
            seen[key] = f"{path}{name}", values or _defaults(definitions[maps[0]])


def _line(depth: int, name: str, default: object, comment: str) -> Iterator[str]:
    """Yield `name: default  # comment`, the comment over several lines where it is long."""
    head = " " * STEP * depth + (f"{name}:" if default is ... else f"{name}: {_value(default)}")
    lines = textwrap.wrap(comment, WIDTH, break_on_hyphens=False)
    if not lines or len(head) > COLUMN:
        yield head
        head = ""
    for line in lines:
        yield f"{head:<{COLUMN}} # {line}"
        head = ""


def _value(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, float):
        return json.dumps(value)
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).removesuffix("...\n").strip()


def _defaults(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field["default"] for name, field in definition["properties"].items() if "default" in field}


def _inner(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a key's schema with all alternatives in it, items of lists included."""
    alternatives = [field, *field.get("anyOf", ()), *field.get("oneOf", ())]
    return alternatives + [
        inner
        for option in alternatives
        if isinstance(option.get("items"), Mapping)
        for inner in _inner(option["items"])
    ]


def _maps(field: Mapping[str, Any]) -> list[str]:
    """Return the names of the definitions that a key's value may be, if they are maps."""
    options = [inner for option in _inner(field) for inner in _inner(option)]
    return list(dict.fromkeys(option["$ref"].rsplit("/", 1)[-1] for option in options if "$ref" in option))


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any], default: object) -> str:
    """Return what a value may be, as far as its default does not show it: a type, bounds, a choice, null."""
    if "$ref" in field:
        return "asset" if field["$ref"].endswith("/Asset") else "map"
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    for union in ("anyOf", "oneOf"):
        if union in field:
            options = [option for option in field[union] if (option.get("type"), default) != ("null", None)]
            return " or ".join(dict.fromkeys(_type(option, definitions, ...) for option in options))
    kind = field.get("type", "any")
    if kind == "array":
        inside = field.get("items") or (field.get("prefixItems") or [{}])[0]
        return f"list of {_type(inside, definitions, ...)}" if default in (None, ...) or "enum" in inside else ""
    bounds = " ".join(text.format(field[name]) for name, text in BOUNDS.items() if name in field)
    if "minimum" in field and "maximum" in field:
        bounds = f"{field['minimum']}–{field['maximum']}"
    bounds = "" if bounds in PLAIN else bounds
    words = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
    return f"{words.get(kind, kind)} {bounds}".strip() if default in (None, ...) else bounds


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
