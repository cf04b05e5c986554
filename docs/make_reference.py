"""Writes the pages made from code: docs/keys/<study>.md, docs/commands.md. `make docs` runs it, a test compares."""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ablation.cli.parser import build_parser
from ablation.config.schema import study_json_schema
from ablation.config.settings import load_settings
from ablation.config.variants import load_studies

DOCS = Path(__file__).resolve().parent
CONFIGS = DOCS.parent / "configs"
BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
SHOWN = 60  # a longer default is one of a map, whose keys have rows of their own
COMMANDS_HEAD = """# Commands

`python -m ablation` is the same command. Errors are one line and exit status 2; `gate` ends with 1 if a run failed,
`audit` if a finding is an error, `fit` if a stage cannot fit. `make docs` makes this page from the parser.

Options in the usage lines below mean the same everywhere:
"""


def pages() -> dict[Path, str]:
    """Return path -> text of every page that is made from code."""
    names = sorted(path.parent.name for path in CONFIGS.glob("studies/*/_study.yaml"))
    studies = load_studies(load_settings({"studies": names}, configs=CONFIGS))
    found = {DOCS / "commands.md": command_page(build_parser())}
    tables: dict[str, list[str]] = {}  # studies of one config model have one page
    for name, study in studies.items():
        tables.setdefault(key_table(study_json_schema(study)), []).append(name)
    for table, of in tables.items():
        found[DOCS / "keys" / f"{of[0]}.md"] = f"# Keys of {' and '.join(f'`{name}`' for name in of)}\n{table}"
    return found


def key_table(schema: Mapping[str, Any]) -> str:
    """Return the keys of a variant file (`study_json_schema`) as a Markdown table: type, default and meaning."""
    lines = [
        "",
        "Made from the config model by `make docs`. `a.b` is key `b` in the map `a`. Where a map has kinds, the row",
        "names in brackets the kind that the key belongs to. A default that is long stands in the rows of its keys.",
        "",
        "| key | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    definitions = schema.get("$defs", {})
    for name, kind, field in _fields(schema["properties"], definitions):
        default = json.dumps(field["default"], ensure_ascii=False) if "default" in field else ""
        shown = f"`{default}`" if default and len(default) <= SHOWN else ""
        cells = [f"`{name}`", _type(field, definitions), shown, f"{kind}{field.get('description', '')}"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _fields(
    properties: Mapping[str, Any],
    definitions: Mapping[str, Any],
    prefix: str = "",
    kind: str = "",
    seen: dict[str, str] | None = None,
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield dotted key, kind of the tagged union it belongs to, and schema, of every key at any depth.

    seen: optional maps (assets) whose keys were told, with the key that they were told at; they are told once.
    """
    seen = {} if seen is None else seen
    for name, field in properties.items():
        if "const" in field and kind:  # the tag itself: the rows of its kind name it
            continue
        key, inner = f"{prefix}{name}", _maps(field)
        first = next((seen[reference] for reference in inner if reference in seen), None)
        if first is not None:
            yield key, kind, {**field, "description": f"{field.get('description', '')} Keys as in `{first}`."}
            continue
        yield key, kind, field
        if field.get("default", ...) is None:
            seen |= dict.fromkeys(inner, key)
        for definition in (definitions[reference] for reference in inner):
            tags = [value["const"] for value in definition["properties"].values() if "const" in value]
            of = f"({', '.join(map(str, tags))}) " if len(inner) > 1 and tags else ""
            yield from _fields(definition["properties"], definitions, f"{key}.", of, seen)


def _maps(field: Mapping[str, Any]) -> list[str]:
    """Return the names of the definitions that a key's value may be (items of lists included), if they are maps."""
    options = [field, *field.get("anyOf", ()), *field.get("oneOf", ())]
    options += [option["items"] for option in list(options) if isinstance(option.get("items"), Mapping)]
    options += [inner for option in list(options) for inner in (*option.get("anyOf", ()), *option.get("oneOf", ()))]
    names = [option["$ref"].rsplit("/", 1)[-1] for option in options if "$ref" in option]
    return list(dict.fromkeys(names))


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the type of a value in words, with its bounds."""
    if "$ref" in field:
        definition = definitions[field["$ref"].rsplit("/", 1)[-1]]
        return _type(definition, definitions)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    for union in ("anyOf", "oneOf"):
        if union in field:
            return " or ".join(dict.fromkeys(_type(option, definitions) for option in field[union]))
    kind = field.get("type", "any")
    if kind == "array":
        inside = field.get("items") or (field.get("prefixItems") or [{}])[0]
        return f"list of {_type(inside, definitions)}" if isinstance(inside, Mapping) else "list"
    bounds = [text.format(field[name]) for name, text in BOUNDS.items() if name in field]
    words = {"object": "map", "integer": "whole number", "string": "text", "boolean": "true or false"}
    return " ".join([words.get(kind, kind), ", ".join(bounds)]).strip()


def command_page(parser: argparse.ArgumentParser) -> str:
    """Return the page as Markdown. What three commands or more have, with one meaning, is explained once."""
    commands = {name: (command, _arguments(command)) for name, command in _commands(parser)}
    times = Counter(argument for _, arguments in commands.values() for argument in arguments)
    common = [argument for argument, number in times.items() if number > 2]
    lines = [COMMANDS_HEAD, *_list(common)]
    for name, (command, arguments) in commands.items():
        places = [_shown(action) for action in _actions(command) if not action.option_strings]
        shared = [f"[{shown}]" for shown, meaning in arguments if (shown, meaning) in common and shown not in places]
        lines += [f"## {name}", "", " ".join([f"    ablation {name}", *places, *shared]), ""]
        lines += [command.description or "", "", *_list(one for one in arguments if one not in common)]
    return "\n".join(lines).rstrip() + "\n"


def _list(arguments: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"- `{shown}`: {meaning}" if meaning else f"- `{shown}`" for shown, meaning in arguments]
    return [*lines, ""] if lines else []


def _arguments(command: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Return the arguments of a command with their meanings; a place without one is in the usage alone."""
    return [(_shown(action), action.help or "") for action in _actions(command) if action.help or action.option_strings]


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


def _shown(action: argparse.Action) -> str:
    """Return an argument as one writes it: `STUDY`, `[STUDY]`, `--seed SEED`."""
    value = action.metavar or action.dest.upper()
    value = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    name = action.option_strings[-1]
    return name if action.nargs == 0 else f"{name} {value}"


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
