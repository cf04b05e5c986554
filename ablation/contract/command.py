"""Fill in the placeholders of a stage's command line, without a shell and without splitting words again.

    accelerate launch train.py {config} --seed {seed} --output {output} --model {input:model}

| placeholder | becomes |
| --- | --- |
| `{config}`, `{config:json}` | the path of a YAML (or JSON) file with the variant's keys that the stage `reads` |
| `{overrides}` | the same keys as Hydra overrides such as `a.b=1`, one word each |
| `{overrides:+}`, `{overrides:++}` | the same with this prefix, for keys that Hydra's own configuration lacks |
| `{value:a.b}` | the value of one of these keys, as JSON unless it is text |
| `{seed}` | the seed |
| `{output}`, `{out}` | the folder for the command's files |
| `{input:NAME}` | the folder with the files of the input NAME |
| `{devices}`, `{threads}` | the numbers of accelerators (at least 1) and CPU threads that the command may use |
| `{python}` | the interpreter of this process |

`!h`, as in `{output!h}` and `{input!h:NAME}`, quotes a value for Hydra's overrides. Literal braces are doubled: `{{`.
"""

import difflib
import json
import os
import re
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

OUTPUT = "output"  # the command's subfolder of its stage's folder, whose other files are the tracker's
KINDS = {
    "config": ("", "yaml", "json"),
    "overrides": ("", "+", "++"),
    "value": None,
    "seed": ("",),
    "output": ("",),
    "out": ("",),
    "input": None,
    "devices": ("",),
    "threads": ("",),
    "python": ("",),
}
"""{placeholder: what may follow its colon}; None means any name."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = ("true", "false", "null", "none", "nan", "inf", "infinity", "on", "off", "yes", "no")


class Placeholder(NamedTuple):
    """A placeholder of a command: `{input:train}` is ("input", "train"), `{seed}` is ("seed", "")."""

    kind: str
    name: str
    conversion: str = ""

    def __str__(self) -> str:
        kind = self.kind + (f"!{self.conversion}" if self.conversion else "")
        return f"{{{kind}:{self.name}}}" if self.name else f"{{{kind}}}"


@dataclass(frozen=True)
class Filling:
    """Values of the placeholders.

    `config` holds the paths of the `yaml` and `json` files, and `values` their content.
    """

    config: Mapping[str, Path]
    values: Mapping[str, Any]
    seed: int | None
    output: Path
    inputs: Mapping[str, Path]
    devices: int
    threads: int
    python: str


def split(command: str | Sequence[str]) -> list[str]:
    """Return the words of a command: text is split as a shell splits it, and a list is copied.

    Raises ValueError if a quotation is not closed.
    """
    return shlex.split(command) if isinstance(command, str) else list(command)


def placeholders(words: Sequence[str]) -> list[Placeholder]:
    """Return the placeholders of all words, in order.

    Raises ValueError for a single brace, an unknown placeholder, and `{overrides}` that is only part of a word.
    """
    collected = []
    for word in words:
        placeholders = [part for part in _parts(word) if isinstance(part, Placeholder)]
        for placeholder in placeholders:
            _check(placeholder)
            if placeholder.kind == "overrides" and word != str(placeholder):
                problem = f"{placeholder} expands to several words, so it cannot be a part of {word!r}"
                raise ValueError(f"{problem}; make it a separate word")
        collected += placeholders
    return collected


def fill(words: Sequence[str], filling: Filling) -> list[str]:
    """Return the command with its placeholders filled in. Raises KeyError for a missing input or value."""
    return [full for word in words for full in _filled(word, filling)]


class Mentions(NamedTuple):
    """Names found in a command: files, modules, and folders in which Python looks for modules."""

    files: list[str]
    modules: list[str]
    folders: list[str]


_STARTED = re.compile(r"(?:^|[\s'\"])(?:-[A-Za-z]*?m\s*|--module\s+)([A-Za-z_][\w.]*)")
_IMPORTED = re.compile(r"\b(?:from\s+([A-Za-z_][\w.]*)\s+)?import\s+([A-Za-z_][\w.]*)")


def mentions(words: Sequence[str]) -> Mentions:
    """Return possible files (`x`, `--key=x`, `a=x,y`, `@x`), modules (`-m x`) and folders (`PYTHONPATH=x:y`).

    The program text after `-c`, Python or shell, is searched too. `files` includes words that name no existing file.
    """
    text = " ".join(words)
    files = [part for word in words for part in (word, *re.split(r"[\s=,@<>|&;()\[\]'\"]+", word))]
    modules = [name for module in _STARTED.findall(text) for name in (module, f"{module}.__main__")]
    modules += [".".join(filter(None, names)) for names in _IMPORTED.findall(text)]
    folders = [folder for path in re.findall(r"PYTHONPATH=([^\s'\"]+)", text) for folder in path.split(os.pathsep)]
    return Mentions(files, modules, [folder for folder in folders if folder])


def _filled(word: str, filling: Filling) -> list[str]:
    parts = list(_parts(word))
    if len(parts) == 1 and isinstance(parts[0], Placeholder) and parts[0].kind == "overrides":
        return [parts[0].name + override for override in hydra_overrides(filling.values)]
    return ["".join(part if isinstance(part, str) else _text(part, filling) for part in parts)]


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None if a variant set a map above the key to null.

    Raises KeyError if the key does not exist.
    """
    value: Any = values
    for part in key.split("."):
        value = None if value is None else value[part]
    return value


def _text(placeholder: Placeholder, filling: Filling) -> str:
    kind, name, conversion = placeholder
    if kind == "value":
        value = value_at(filling.values, name)
    elif kind == "input":
        value = str(filling.inputs[name])
    elif kind == "config":
        value = str(filling.config[name or "yaml"])
    else:
        value = str(filling.output if kind == "out" else getattr(filling, kind))
    if conversion:
        return hydra_value(value)
    return value if isinstance(value, str) else json.dumps(value)


def _parts(word: str) -> Iterator[str | Placeholder]:
    for literal, name, spec, conversion in string.Formatter().parse(word):
        if literal:
            yield literal
        if name is not None:
            yield Placeholder(name, spec or "", conversion or "")


def _check(placeholder: Placeholder) -> None:
    kind, name, conversion = placeholder
    if kind not in KINDS or conversion not in ("", "h") or (conversion and kind in ("overrides", "seed")):
        kinds = ", ".join(f"{{{name}}}" for name in KINDS)
        near = difflib.get_close_matches(kind, KINDS, n=1) if kind else []
        meant = near[0] if near else f"value:{kind}" if kind.isidentifier() else ""
        remedy = f"did you mean {{{meant}}}? Otherwise, write" if meant else "write"
        problem = f"{placeholder} is not a placeholder (choose from {kinds})"
        raise ValueError(f"{problem}; {remedy} literal braces as {{{{ and }}}}")
    allowed = KINDS[kind]
    if allowed is None and not name:
        raise ValueError(f"{placeholder} lacks a name; write {{{kind}:NAME}}")
    if allowed is not None and name not in allowed:
        forms = ", ".join(str(Placeholder(kind, form)) for form in allowed)
        raise ValueError(f"{placeholder} is not a placeholder; choose from {forms}")


def hydra_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return nested values as Hydra overrides, one for each leaf: `{"a": {"b": 1}}` is `["a.b=1"]`."""
    return [f"{key}={hydra_value(value)}" for key, value in leaves(values)]


def hydra_value(value: Any) -> str:
    """Return a plain value in Hydra's grammar for overrides (hydra.cc, "Extended Override syntax").

    Text is quoted unless it is a plain word. Inside quotes, a quote and the backslashes before it are escaped, as are
    backslashes at the end and `${`, which would start an interpolation.
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    return _quoted(str(value))


def _key(key: Any) -> str:
    return re.sub(r"([\\()\[\]{}:=,\s])", r"\\\1", str(key))  # keys have no quotes


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    text = re.sub(r"(\\*)\$\{", lambda match: 2 * match[1] + "\\${", text)
    text = re.sub(r"(\\*)('|\Z)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{text}'"


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of every leaf; an empty mapping is a leaf."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
