"""The definitions of a Python file, and the names to which each of its statements refers.

A statement counts by its syntax tree: comments, docstrings and layout do not. The text form of a tree belongs to a
minor version of Python, and so does its digest. Names are resolved by `ablation.contract.fingerprint`.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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
# By these, code finds definitions that it does not name.
_SEARCHING = re.compile(
    r"(__import__|eval|exec|globals)$|(builtins|importlib|pkgutil|pydoc|runpy)\b|sys\.+modules\b|inspect\.+getmodule\b"
    r"|ablation\.contract\.parts\.(load|part)\b"
)
_SEARCHING_ATTRIBUTES = frozenset(("__globals__", "__subclasses__", "f_globals"))
_WITHOUT_MEANING = frozenset(("ctx", "kind", "type_comment", "type_ignores"))
_WORD = re.compile(r"[A-Za-z_][\w.]*")


class Import(NamedTuple):
    """`from module import name as bound`; name: empty for the module itself. bound: empty where it binds nothing."""

    bound: str
    module: str
    name: str


class Statement(NamedTuple):
    """A statement at the top level of a file.

    names: as they stand in it, with attributes: `losses.clipped`. imports: inside it. searches: it may reach
    definitions that it does not name, through `import_module`, `globals()` and their like.
    """

    digest: str
    names: frozenset[str]
    imports: tuple[Import, ...]
    searches: bool


class File(NamedTuple):
    """A file's statements, except imports and what only type checkers see.

    bindings: name -> the statements (by number) and imports that bind it. always: the statements that do something when
    the file is imported. imports: of the file itself.
    """

    text: bytes
    statements: tuple[Statement, ...]
    bindings: dict[str, tuple[int | Import, ...]]
    always: tuple[int, ...]
    imports: tuple[Import, ...]


_CACHE: dict[tuple[str, str, bytes], File] = {}


def file_of(name: str, path: Path, source: bytes) -> File:
    """Return the definitions of a module's file; cached until its text changes. Raises ConfigError."""
    key = (name, path.name, hashlib.sha256(source).digest())
    if key not in _CACHE:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise ConfigError(path, "", None, f"is not valid Python ({error})", "correct it") from None
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        _CACHE[key] = _file(tree, package, key[2])
    return _CACHE[key]


def _file(tree: ast.Module, package: str, text: bytes) -> File:
    nodes: list[ast.stmt] = []
    statements: list[Statement] = []
    bindings: dict[str, list[int | Import]] = {}
    imports: list[Import] = []
    foreign_imports: list[ast.stmt] = []
    for node in _run(tree.body):
        found: Iterable[Import] = ()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = _imports(node, package)
            if all(map(_is_foreign, found)):
                foreign_imports.append(node)
        else:
            statement = _statement(node, package)
            found = () if isinstance(node, _DEFINITIONS) else statement.imports
            for name in [node.name] if isinstance(node, _DEFINITIONS) else _bound(node):
                bindings.setdefault(name, []).append(len(nodes))
            nodes.append(node)
            statements.append(statement)
        imports += found
        for each in found:
            bindings.setdefault(each.bound, []).append(each)
    bindings.pop("", None)
    foreign = {name for name, bound in bindings.items() if all(map(_is_foreign, bound))}
    own = bindings.keys() - foreign
    statements = [each._replace(searches=each.searches or _searches(each, bindings)) for each in statements]
    used = {name.partition(".")[0] for each in statements for name in each.names}
    effects = [node for node in foreign_imports if _for_its_effects(node, used)]
    always = tuple(number for number, node in enumerate(nodes) if _acts(node, own))
    always += tuple(range(len(statements), len(statements) + len(effects)))
    statements += [_statement(node, package)._replace(imports=()) for node in effects]
    return File(text, tuple(statements), {name: tuple(b) for name, b in bindings.items()}, always, tuple(imports))


def _run(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the file is imported."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            *("TYPE_CHECKING", "typing.TYPE_CHECKING"),
            "__name__ == '__main__'",
        ):
            yield from _run(node.orelse)
        elif not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            yield node


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds, other than by importing; rather too many than too few."""
    found = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)]
    found += [each.name for each in ast.walk(node) if isinstance(each, _DEFINITIONS)]
    return list(dict.fromkeys(found))


def _is_foreign(bound: int | Import) -> bool:
    return isinstance(bound, Import) and bound.module.partition(".")[0] not in PACKAGES


def _for_its_effects(node: ast.stmt, used: Iterable[str]) -> bool:
    """Whether an import may be there for what it does: of a library outside Python's, a name unused or with dots."""
    if isinstance(node, ast.ImportFrom):
        return any(each.name == "*" for each in node.names)
    names = [each.name for each in node.names if each.asname is None] if isinstance(node, ast.Import) else []
    others = [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
    return any("." in name or name not in used for name in others)


def _imports(node: ast.Import | ast.ImportFrom, package: str) -> list[Import]:
    if isinstance(node, ast.Import):
        found = []
        for each in node.names:
            top = each.name.partition(".")[0]
            found.append(Import(each.asname or top, each.name if each.asname else top, ""))
            found.append(Import("", each.name, ""))
        return found
    above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    return [Import("" if each.name == "*" else each.asname or each.name, module, each.name) for each in node.names]


def _acts(node: ast.stmt, own: Iterable[str]) -> bool:
    """Whether running a statement may do more than bind its names; the effect of calling project code is not known.

    own: names that are bound to something of the project; calling one may have any effect.
    """
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return not _binds(node) or any(isinstance(each, ast.Call) for each in ast.walk(node))
    if isinstance(node, _FUNCTIONS):
        evaluated = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        return any(not _harmless(each, own) for each in [*node.decorator_list, *_calls(evaluated)])
    if isinstance(node, ast.ClassDef):
        if node.keywords or any(_root(base) in own for base in node.bases):
            return True
        inner = [each for each in node.body if isinstance(each, _DEFINITIONS)]
        others = [each for each in node.body if not isinstance(each, _DEFINITIONS)]
        evaluated = [*node.decorator_list, *_calls([*node.decorator_list, *others])]
        if not all(map(_binds, others)) or not all(_harmless(each, own) for each in evaluated):
            return True
        return any(_acts(each, own) for each in inner)
    return not (hasattr(ast, "TypeAlias") and isinstance(node, ast.TypeAlias))


def _binds(node: ast.stmt) -> bool:
    """Whether a statement does no more than give names a value, if that."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(isinstance(each, ast.Name | ast.Tuple | ast.Store) for each in _walk(targets))
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _calls(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    return [node for node in _walk(nodes) if isinstance(node, ast.Call)]


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
    return _statement(tree, "").digest


def imported_names(nodes: Iterable[ast.AST]) -> Iterable[tuple[int, str]]:
    """Yield (dots, name) of all that may be imported modules; `from .a import b` gives (1, "a") and (1, "a.b")."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield node.level, base
            yield from ((node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names)


def _statement(node: ast.stmt | ast.Module, package: str) -> Statement:
    reader = _Reader(package)
    reader.add(node)
    return Statement(digest_of(reader.words), frozenset(reader.names), tuple(reader.imports), reader.searches)


def _searches(statement: Statement, bindings: Mapping[str, Iterable[int | Import]]) -> bool:
    """Whether a statement looks definitions up by other means than their names, under whatever alias."""
    for dotted in statement.names:
        head, _, rest = dotted.partition(".")
        bound = [each for each in (*bindings.get(head, ()), *statement.imports) if isinstance(each, Import)]
        meant = [f"{each.module}.{each.name}.{rest}" for each in bound if each.bound == head]
        if any(map(_SEARCHING.match, [dotted, *meant])):
            return True
    return False


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
            self.imports += _imports(value, self.package)
        elif kind is ast.AnnAssign:  # evaluating a class's annotations finds names in strings as well
            texts = (each.value for each in ast.walk(value.annotation) if isinstance(each, ast.Constant))
            self.names.update(word for text in texts if isinstance(text, str) for word in _WORD.findall(text))
        for field in self.fields[kind]:
            found: Any = getattr(value, field, None)
            documented = field == "body" and kind in _DOCUMENTED and found and _is_docstring(found[0])
            self.add(found[1:] if documented else found)

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
