"""The statements of a Python file: what each binds, and the names to which it refers.

A statement counts by its syntax tree: comments, docstrings and layout do not. The text form of a tree belongs to a
minor version of Python, and so does its digest. Names are resolved by `ablation.contract.fingerprint`.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ablation.contract.errors import ConfigError
from ablation.contract.parts import PACKAGES

LENGTH = 16
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_DOCUMENTED = (*_DEFINITIONS, ast.Module)
# Free of side effects where it decorates a definition or gives a default or a field its value.
_HARMLESS = frozenset(
    (
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass", "field", "final"),
        *("frozenset", "inference_mode", "lru_cache", "no_grad", "overload", "override", "property", "staticmethod"),
        *("total_ordering", "tuple"),
    )
)
# By these, code finds definitions that it does not name: names in a statement, what it imports, attributes.
_SEARCHING = re.compile(r"(__import__|eval|exec|globals)$|sys\.modules\b|inspect\.getmodule\b")
_SEARCHING_IMPORTS = re.compile(
    r"(builtins|importlib|pkgutil|pydoc|runpy)\b|sys\.modules$|inspect\.getmodule$"
    r"|ablation\.contract\.parts(\.load|\.part)?$"
)
_SEARCHING_ATTRIBUTES = frozenset(("__globals__", "__subclasses__", "f_globals"))
_WITHOUT_MEANING = frozenset(("ctx", "kind", "type_comment", "type_ignores"))
_WORD = re.compile(r"[A-Za-z_][\w.]*")


class Import(NamedTuple):
    """`from module import name as bound`; name: empty for the module itself. bound: empty where it binds nothing."""

    bound: str
    module: str
    name: str

    @property
    def searches(self) -> bool:
        """Whether what is imported may find definitions that code does not name."""
        renamed = self.module in ("sys", "inspect") and not self.name and self.bound not in ("", self.module)
        return renamed or _SEARCHING_IMPORTS.match(f"{self.module}.{self.name}".rstrip(".")) is not None


class Statement(NamedTuple):
    """A statement at the top level of a file; of an import statement, the part that imports one name.

    binds: names. names: as they stand in it, with attributes: `losses.clipped`. imports: it, or inside it. deferred:
    it imports nothing until it is called. acts: it may do more than bind its names when the file is imported. searches:
    it may reach definitions that it does not name, through `import_module`, `globals()` and their like.
    """

    digest: str
    binds: tuple[str, ...]
    names: frozenset[str]
    imports: tuple[Import, ...]
    deferred: bool
    acts: bool
    searches: bool


class File(NamedTuple):
    """A file's statements, except those that only type checkers see. bindings: name -> the statements that bind it."""

    text: bytes
    statements: tuple[Statement, ...]
    bindings: dict[str, tuple[int, ...]]


_CACHE: dict[tuple[str, str, bytes], File] = {}


def file_of(name: str, path: Path, source: bytes) -> File:
    """Return the definitions of a module's file; cached until its text changes. Raises ConfigError."""
    key = (name, path.name, hashlib.sha256(source).digest())
    if key not in _CACHE:
        try:
            tree = ast.parse(source, path.name)
        except (SyntaxError, ValueError) as error:
            raise ConfigError(path, "", None, f"is not valid Python ({error})", "correct it") from None
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        statements = tuple(_statements(list(_run(tree.body)), package))
        bindings: dict[str, tuple[int, ...]] = {}
        for number, statement in enumerate(statements):
            for bound in statement.binds:
                bindings[bound] = (*bindings.get(bound, ()), number)
        _CACHE[key] = File(key[2], statements, bindings)
    return _CACHE[key]


def _run(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the file is imported."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            *("TYPE_CHECKING", "typing.TYPE_CHECKING"),
            "__name__ == '__main__'",
        ):
            yield from _run(node.orelse)
        elif not _is_idle(node):
            yield node


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _statements(nodes: Sequence[ast.stmt], package: str) -> Iterator[Statement]:
    read = [_read(node, package) for node in nodes]
    own = {
        name
        for node, reader in zip(nodes, read, strict=True)
        for name in _bound(node, reader.imports)
        if not isinstance(node, ast.Import | ast.ImportFrom) or any(map(_is_own, reader.imports))
    }
    for node, reader in zip(nodes, read, strict=True):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield _import(node, alias, package)
        else:
            searches = reader.searches or any(map(_SEARCHING.match, reader.names))
            yield Statement(
                digest=digest_of(reader.words),
                binds=_bound(node, reader.imports),
                names=frozenset(reader.names),
                imports=tuple(reader.imports),
                deferred=isinstance(node, _DEFINITIONS),
                acts=_acts(node, own),
                searches=searches or any(each.searches for each in reader.imports),
            )


def _import(node: ast.Import | ast.ImportFrom, alias: ast.alias, package: str) -> Statement:
    """Return the part of an import statement that imports one name."""
    imports = tuple(_imported(node, alias, package))
    bound = tuple(each.bound for each in imports if each.bound)
    # What a library does when it is imported may be the reason for it; Python's own modules do nothing.
    library = imports[-1].module.partition(".")[0] not in (*PACKAGES, *sys.stdlib_module_names)
    acts = library and (alias.name == "*" or (isinstance(node, ast.Import) and alias.asname is None))
    words = [f"import {each.bound}={each.module}.{each.name}" for each in imports]
    return Statement(digest_of(words), bound, frozenset(), imports, False, acts, any(each.searches for each in imports))


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias, package: str) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        top = alias.name.partition(".")[0]
        yield Import(alias.asname or top, alias.name if alias.asname else top, "")
        yield Import("", alias.name, "")
        return
    above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    yield Import("" if alias.name == "*" else alias.asname or alias.name, module, alias.name)


def _is_own(each: Import) -> bool:
    return each.module.partition(".")[0] in PACKAGES


def _bound(node: ast.stmt, imports: Iterable[Import]) -> tuple[str, ...]:
    """Return the names that a statement binds; rather too many than too few."""
    if isinstance(node, _DEFINITIONS):
        return (node.name,)
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)]
    names += [each.name for each in ast.walk(node) if isinstance(each, _DEFINITIONS)]
    names += [each.bound for each in imports if each.bound]
    return tuple(dict.fromkeys(names))


def _acts(node: ast.stmt, own: Iterable[str]) -> bool:
    """Whether running a statement may do more than bind its names; the effect of calling project code is not known.

    own: names that are bound to something of the project; calling one may have any effect.
    """
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        plain = all(isinstance(each, ast.Name | ast.Tuple | ast.Store) for each in _walk(targets))
        return not plain or _calls([node.value] if node.value else [], own)
    if isinstance(node, _FUNCTIONS):
        return _calls([*node.args.defaults, *filter(None, node.args.kw_defaults)], own, node.decorator_list)
    if isinstance(node, ast.ClassDef):
        if node.keywords or any(_root(base) in own for base in node.bases):
            return True
        return _calls((), own, node.decorator_list) or any(_acts(each, own) for each in node.body)
    return not (_is_idle(node) or (hasattr(ast, "TypeAlias") and isinstance(node, ast.TypeAlias)))


def _calls(values: Iterable[ast.AST], own: Iterable[str], decorators: Iterable[ast.AST] = ()) -> bool:
    """Whether a decorator, or a call in one or in a value, may have side effects."""
    calls = [each for each in _walk((*values, *decorators)) if isinstance(each, ast.Call)]
    return not all(_harmless(each, own) for each in (*decorators, *calls))


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _harmless(node: ast.AST, own: Iterable[str]) -> bool:
    """Whether a decorator or a call is known to have no side effects."""
    function = node.func if isinstance(node, ast.Call) else node
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    accessor = name in ("setter", "getter", "deleter")  # of a property in the same class
    return (accessor or name in _HARMLESS) and _root(function) not in own


def _root(node: ast.AST) -> str:
    """Return the name in front of the attributes, or nothing."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def tree_digest(tree: ast.Module) -> str:
    """Return 16 hex digits for a syntax tree without its docstrings."""
    return digest_of(_read(tree, "").words)


def imported_names(nodes: Iterable[ast.AST]) -> Iterable[tuple[int, str]]:
    """Yield (dots, name) of all that may be imported modules; `from .a import b` gives (1, "a") and (1, "a.b")."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield node.level, base
            yield from ((node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names)


def _read(node: ast.AST, package: str) -> "_Reader":
    reader = _Reader(package)
    reader.add(node)
    return reader


def digest_of(words: Iterable[str]) -> str:
    """Return 16 hex digits for words in this order."""
    return hashlib.sha256(" ".join(words).encode(errors="surrogatepass")).hexdigest()[:LENGTH]


class _Reader:
    """Finds the text form of a tree (as by `ast.dump`, without docstrings), the names in it and its imports.

    All in one pass, because planning takes as long as this takes.
    """

    fields: ClassVar[dict[type, tuple[str, ...]]] = {}

    def __init__(self, package: str) -> None:
        self.package = package
        self.words: list[str] = []
        self.names: set[str] = set()
        self.imports: list[Import] = []
        self.searches = False

    def add(self, value: Any) -> None:
        kind = value.__class__
        if kind is list:
            self.words.append("[")
            for each in value:
                self.add(each)
            self.words.append("]")
            return
        if kind not in self.fields:
            if not isinstance(value, ast.AST):
                self.words.append(repr(value))
                return
            self.fields[kind] = tuple(field for field in value._fields if field not in _WITHOUT_MEANING)
        self.words.append(kind.__name__)
        if kind is ast.Attribute:
            self._add_attribute(value)
            return
        if kind is ast.Name:
            self.names.add(value.id)
        elif kind is ast.Import or kind is ast.ImportFrom:
            self.imports += (each for alias in value.names for each in _imported(value, alias, self.package))
        elif kind is ast.AnnAssign:  # evaluating a class's annotations finds names in strings as well
            texts = (each.value for each in ast.walk(value.annotation) if isinstance(each, ast.Constant))
            self.names.update(word for text in texts if isinstance(text, str) for word in _WORD.findall(text))
        for field in self.fields[kind]:
            content: Any = getattr(value, field, None)
            documented = field == "body" and kind in _DOCUMENTED and content and _is_docstring(content[0])
            self.add(content[1:] if documented else content)

    def _add_attribute(self, node: Any) -> None:
        chain = []
        while node.__class__ is ast.Attribute:
            chain.append(node.attr)
            node = node.value
        self.words.append(repr(chain))
        self.searches |= not _SEARCHING_ATTRIBUTES.isdisjoint(chain)
        if node.__class__ is ast.Name:
            self.words.append(repr(node.id))
            self.names.add(".".join([node.id, *reversed(chain)]))
        else:
            self.add(node)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
