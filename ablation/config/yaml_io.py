"""Strict YAML for configurations: the YAML 1.2 core types, no duplicate keys, no aliases, no tags.

PyYAML alone reads `2e-5` as text, `no` as False, `1:30` as 90 and the last of two equal keys as the only one.
"""

import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ablation.contract.display import one_line, printable
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_bytes

try:
    from yaml import CSafeLoader as _Base  # libyaml: ten times faster on a thousand variants
except ImportError:
    from yaml import SafeLoader as _Base  # type: ignore[assignment]

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_MAX_BYTES = 1_000_000
_MAX_DIGITS = 100
_MAX_DEPTH = 100  # libyaml's own recursion ends the process at some ten thousand
_MAX_NODES = 100_000  # nodes of another program's file, with its aliases written out


class _Problem(yaml.MarkedYAMLError):
    def __init__(self, key: str, problem: str, remedy: str, mark: yaml.Mark | None) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.key, self.remedy = key, remedy


class _StrictLoader(_Base):
    """Loader of YAML according to the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own interface: none of YAML 1.1's


def _resolve(tag: str, pattern: str, first: str) -> None:
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))


_resolve("null", "~|null|Null|NULL", "~nN")
_StrictLoader.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile("^$")))
_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("int", _INT.pattern, "-+0123456789")
_resolve("float", _FLOAT.pattern, "-+.0123456789")


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = node.value
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    number = int(text[2:] if base != 10 else text, base) if len(text) <= _MAX_DIGITS else 2**63
    if not -(2**63) <= number < 2**63:
        problem = f"{one_line(text, 40)} is too large for a 64-bit whole number"
        raise _Problem("", problem, "write a smaller number, or a float such as 1e30", node.start_mark)
    return number


def _construct_text(loader: Any, node: yaml.ScalarNode) -> str:
    if printable(node.value) != node.value:
        problem = f"the text '{one_line(node.value, 40)}' contains a control character"
        raise _Problem("", problem, "remove the character, because a terminal would act on it", node.start_mark)
    return str(node.value)


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    value = float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise _Problem("", f"{node.value} is not a finite number", "use null for no bound", node.start_mark)
    return value


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key: Hashable = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _Problem(str(key_node.value), "keys must be text", "put the key in quotes", key_node.start_mark)
        if key in mapping:
            raise _Problem(key, "the key occurs twice", "remove one of the two", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_StrictLoader.add_constructor("tag:yaml.org,2002:str", _construct_text)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


class _PrintedLoader(_StrictLoader):
    """Loader of YAML that keeps the text of numbers with a decimal point or an exponent."""


def _keep_float(loader: Any, node: yaml.ScalarNode) -> str:
    _construct_float(loader, node)
    return str(node.value)


_PrintedLoader.add_constructor("tag:yaml.org,2002:float", _keep_float)


def load_yaml(path: Path, *, as_printed: bool = False) -> dict[str, Any]:
    """Return the mapping in a YAML file; an empty file gives an empty mapping.

    If `as_printed` is true, numbers with a decimal point or an exponent stay text, such as "0.700".

    Raises ConfigError if the file cannot be read, is not YAML, is not a mapping, or contains a duplicate key, a key
    that is not text, an alias, a tag or a number that is not finite. Its `file` is `path:line` if the line is known.
    """
    try:
        raw = read_bytes(path)
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(path, "", None, "the file does not exist", "create it, or correct the name") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            path, "", None, f"cannot be read as UTF-8 text ({error})", "replace it with a readable UTF-8 file"
        ) from error
    if len(raw) > _MAX_BYTES:
        raise ConfigError(path, "", None, f"has {len(raw):,} bytes", f"shorten it to at most {_MAX_BYTES:,} bytes")
    try:
        _check(text)
        value = yaml.load(text, Loader=_PrintedLoader if as_printed else _StrictLoader)
    except _Problem as error:
        raise ConfigError(_at(path, error), error.key, None, str(error.problem), error.remedy) from None
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(_at(path, error), "", None, f"is not valid YAML ({problem})", "correct this line") from None
    except yaml.YAMLError as error:
        raise ConfigError(path, "", None, f"is not valid YAML ({error})", "correct the file") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(path, "", None, f"contains a {type(value).__name__}, not keys", "write `key: value` lines")
    return value


def parse_foreign(text: str) -> Any:
    """Return the value of YAML that another program wrote, according to YAML 1.1.

    PyYAML writes an alias wherever two settings share a list, so aliases are allowed, unless they are recursive or
    expand to too many values.

    Raises ValueError, with a text of one line, if the text is not YAML or is too large.
    """
    try:
        _check(text, foreign=True)
        if _nodes(yaml.compose(text, Loader=_Base), {}) > _MAX_NODES:
            raise ValueError("the aliases expand to too many values")
        return yaml.load(text, Loader=_Base)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(one_line(error, 200)) from None
    except (AttributeError, LookupError, TypeError) as error:  # of PyYAML's constructors, at `!!bool x` or `!!int +`
        raise ValueError(f"a value does not fit its tag ({type(error).__name__})") from None


def _nodes(node: Any, counts: dict[int, int]) -> int:
    """Return the number of nodes below and including a node, counting each alias as all nodes to which it refers."""
    if id(node) not in counts:
        counts[id(node)] = _MAX_NODES + 1  # in case it occurs below itself
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        counts[id(node)] = 1 + sum(_nodes(each, counts) for pair in pairs for each in pair)
    return counts[id(node)]


def _check(text: str, *, foreign: bool = False) -> None:
    """Raise an error for deep nesting and, unless the YAML is `foreign`, for anchors, aliases and tags.

    Deep nesting would crash the process, nested aliases can expand to gigabytes, a shared value hides what a file says,
    and a tag can turn text into something that its writer did not mean.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        mark: Any = event.start_mark
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _Problem("", f"is nested more than {_MAX_DEPTH} levels deep", "flatten it", mark)
        if foreign:
            continue
        if anchor is not None:
            raise _Problem(str(anchor), "anchors and aliases are not supported", "write the value out", mark)
        if tag is not None:
            raise _Problem(one_line(tag, 80), "tags are not supported", "remove the tag", mark)


def _at(path: Path, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{path}:{mark.line + 1}" if mark else str(path)
