"""Find the code of a stage: its own files and all files of the project that they import, directly or indirectly.

For a trainer, the search starts at the stage's entry module, the modules of its parts and HARNESS. It follows imports
of `trainers`; imported modules of `ablation` count, but their own imports do not. For a command, it starts at the files
that its `code` names, anywhere below the project's folder, and at the modules that its words run or import.

The digest of a Python file is that of its syntax tree without docstrings, so comments and layout do not matter. It
depends on Python's minor version, as the text form of the tree does. Other files count byte by byte. In folders, caches
(`__pycache__`), hidden files and anything that is not a regular file are skipped.
"""

import ast
import fnmatch
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ablation.contract.command import mentions
from ablation.contract.errors import ConfigError
from ablation.contract.parts import PACKAGES

LENGTH = 16
# An entry need not name them, but every stage of a trainer runs them.
HARNESS = ("ablation.runner.lifetime", "ablation.runner.stage", "ablation.contract.health", "trainers.harness")
_OURS = "ablation/"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Code(NamedTuple):
    """The code that the key of a stage covers, as files with their digests.

    start: the files, or patterns of files, at which the search starts. files: {path from the project's folder: digest}.
    parts: the variant's {slot: dotted name} (`ablation.contract.parts`). text: one digest of the files' bytes, which is
    quick to compare. For a trainer: entry is its module; exclude are files that neither count nor are followed, such as
    config models, whose values are in the key. For a command: outside are folders that jobs write to, which hold no
    code even if `code` is the whole project; words is the command.
    """

    start: tuple[str, ...]
    files: dict[str, str]
    parts: dict[str, str]
    text: str = ""
    entry: str = ""
    exclude: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Return one digest of all files and parts, 64 hex digits; it is part of the stage's key."""
        counted = self.files | {f"parts.{slot}": name for slot, name in self.parts.items()}
        lines = "".join(f"{name} {digest}\n" for name, digest in sorted(counted.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def code_of(
    entry: str,
    root: Path,
    *,
    parts: Mapping[str, str] | None = None,
    exclude: Iterable[str] = (),
    sources: "Sources | None" = None,
) -> Code:
    """Return the code of a trainer's stage.

    Args:
        entry: the module of the stage, which defines `run`.
        root: the folder that holds the project's packages.
        parts: {slot: dotted name of a module, function or class}.
        exclude: modules that neither count nor are followed, because the key holds what they decide: config models and
            the study's `parts`.
        sources: files below `root` that have been read, which are not read again; by default none.

    Raises ConfigError if a module or the function in it does not exist (the error's `value` is the module's name), or
    if a file is not valid Python (`value` is None).
    """
    sources, parts = sources or Sources(root), dict(parts or {})
    names = (f"{entry}.run", *HARNESS, *parts.values())
    start = tuple(dict.fromkeys(file for name in names for file in sources.defining(name)))
    named = {sources.find(name) or sources.find(name.rpartition(".")[0]) for name in names}  # these count in any case
    excluded = tuple(sorted({sources.find(name) for name in exclude} - named - {""}))
    code = Code(start, {}, parts, entry=entry, exclude=excluded)
    files = sources.files(code)
    for file in files:
        if broken := sources.read(file).broken:
            raise ConfigError(root / file, "", None, f"is not valid Python ({broken})", "correct the syntax")
    return code._replace(files=files, text=sources.text(files))


def code_files(patterns: Iterable[str], root: Path, outside: Iterable[Path] = (), words: Iterable[str] = ()) -> Code:
    """Return a command's code; a pattern names a file, all files of a folder, or files by `*`, `?`, `**` or `[...]`.

    Nothing below the folders `outside` counts. The modules that `words`, the command, runs or imports count too.

    Raises ConfigError if a pattern matches no file (the error's `value` is the pattern), or if a file cannot be read
    (`value` is all patterns).
    """
    code = Code(tuple(patterns), {}, {}, outside=tuple(map(str, outside)), words=tuple(words))
    for pattern in code.start:
        if not _matching(pattern, root, code.outside):
            problem = f"matches no file in {root.resolve()}"
            raise ConfigError(root, "", pattern, problem, "name a file, a folder or a pattern such as `src/**/*.py`")
    sources = Sources(root)
    try:
        files = sources.files(code)
    except OSError as error:
        problem = f"{error.filename} cannot be read ({error.strerror})"
        raise ConfigError(root, "", code.start, problem, "make the file readable") from None
    return code._replace(files=files, text=sources.text(files))


def changed(code: Code, root: Path) -> list[str]:
    """Return the files of a stage's code that have changed, are gone, or are new.

    If no byte of a trainer's files has changed, nothing is parsed, so the check takes milliseconds. A command's files
    are always searched, because new files may match its patterns.
    """
    if code.entry and _joined({name: _sha_of(root / name) for name in code.files}) == code.text:
        return []
    now = Sources(root).files(code)
    return sorted(name for name in {**code.files, **now} if code.files.get(name) != now.get(name))


def _sha_of(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except FileNotFoundError:
        return b""


def _joined(digests: Mapping[str, bytes]) -> str:
    joined = b"".join(name.encode() + digests[name] for name in sorted(digests))
    return hashlib.sha256(joined).hexdigest()[:LENGTH]


class Sources:
    """Files of the project as they were when first read; paths are relative to `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, _File] = {}
        self._modules: dict[tuple[str, str], list[str]] = {}

    def read(self, file: str) -> "_File":
        """Return a file's digest, imports and top-level names. Raises OSError if the file cannot be read."""
        if file not in self._read:
            self._read[file] = _read(self.root / file)
        return self._read[file]

    def find(self, module: str) -> str:
        """Return the file of a module of `trainers` or `ablation`; empty if the module does not exist."""
        stem, top = module.replace(".", "/"), module.partition(".")[0]
        files = self.modules(module, [""]) if top in PACKAGES else []
        return files[-1] if files and files[-1] in (f"{stem}.py", f"{stem}/__init__.py") else ""

    def binds(self, module: str) -> frozenset[str]:
        """Return the names that a module binds at its top level; empty if the module does not exist."""
        return self.read(file).bindings if (file := self.find(module)) else frozenset()

    def defining(self, name: str) -> list[str]:
        """Return the files of a module, or of the module that defines a function, and of the packages above the module.

        Raises ConfigError if the name does not exist.
        """
        if self.find(name):
            return self.modules(name, [""])
        module, _, function = name.rpartition(".")
        if not (file := self.find(module)):
            remedy = "create it, or correct the name"
            raise ConfigError(self.root, "", module or name, "the module does not exist", remedy)
        if function not in self.binds(module) and not self.read(file).broken:
            problem = f"the module has no {function}"
            raise ConfigError(self.root, "", module, problem, f"define {function}, or correct the name")
        return self.modules(module, [""])

    def modules(self, name: str, folders: Iterable[str]) -> list[str]:
        """Return the files of a module and of the packages above it, from the first folder that has any such file."""
        for folder in dict.fromkeys(folders) if "/" not in name else ():
            if (name, folder) not in self._modules:
                parts = name.split(".")
                stems = [os.path.normpath(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts) + 1)]
                files = [file for stem in stems for file in (f"{stem}/__init__.py", f"{stem}.py")]
                existing = [file for file in files if not file.startswith("../") and (self.root / file).is_file()]
                self._modules[name, folder] = existing
            if existing := self._modules[name, folder]:
                return existing
        return []

    def files(self, code: Code) -> dict[str, str]:
        """Return {path: digest} of the code's own files and of all files that they import, directly or indirectly.

        Raises OSError if a file cannot be read.
        """
        mentioned = mentions(code.words)
        scripts = [os.path.dirname(name) for name in named_files(code.words, self.root) if name.endswith(".py")]
        first = [*scripts, *([""] if mentioned.modules else [])]
        folders = (
            [""] if code.entry else [*first, *(_within(folder, self.root) for folder in mentioned.folders), "", "src"]
        )
        waiting = [name for pattern in code.start for name in _matching(pattern, self.root, code.outside)]
        waiting += [name for module in mentioned.modules for name in self.modules(module, folders)]
        digests: dict[str, str] = {}
        while waiting:
            name = waiting.pop()
            if name in digests or name in code.exclude:
                continue
            digests[name] = self.read(name).digest
            waiting += self._imported(name, folders, of_trainer=bool(code.entry))
        return dict(sorted(digests.items()))

    def _imported(self, name: str, folders: Iterable[str], *, of_trainer: bool) -> Iterator[str]:
        """Yield the files that a file imports; for a trainer, a file of `ablation` counts as importing nothing."""
        folder = os.path.dirname(name)
        # Where it is the program, or next to it:
        namespace_folders = [folder] if not of_trainer and not (self.root / folder / "__init__.py").exists() else []
        for level, module in () if of_trainer and name.startswith(_OURS) else self.read(name).imports:
            if level:
                above = os.path.join(folder, *[".."] * (level - 1))
                yield from self.modules(module or "__init__", [above])
            elif not of_trainer or module.partition(".")[0] in PACKAGES:
                yield from self.modules(module, [*namespace_folders, *folders])

    def text(self, files: Iterable[str]) -> str:
        """Return one digest of the bytes of these files."""
        return _joined({name: self.read(name).sha for name in files})


# Files


def named_files(words: Iterable[str], root: Path) -> list[str]:
    """Return the project's files that a command names, except files of a Python environment."""
    names = filter(None, (_within(word, root) for word in mentions(tuple(words)).files))
    return [name for name in dict.fromkeys(names) if os.path.isfile(root / name) and not is_installed(root, name)]


def is_installed(root: Path, name: str) -> bool:
    """Return whether a file of the project belongs to a Python environment."""
    return any((root / folder / "pyvenv.cfg").exists() for folder in Path(name).parents)


def _within(path: str, root: Path) -> str:
    """Return a path relative to `root`; empty if the path is not below `root`."""
    name = os.path.relpath(path, root.absolute()) if os.path.isabs(path) else os.path.normpath(path)
    return "" if name.split(os.sep)[0] == os.pardir else Path(name).as_posix()


def _matching(pattern: str, root: Path, outside: Iterable[str]) -> list[str]:
    """Return the paths, relative to `root`, of the files that a pattern names, with `/` between their parts."""
    parts = Path(pattern).parts
    plain = next((place for place, part in enumerate(parts) if set("*?[") & set(part)), len(parts))
    start, wild = Path(*parts[:plain]), parts[plain:] or ("**",)
    if plain == len(parts) and (root / start).is_file():
        return [start.as_posix()]
    visited = {inode for folder in outside if (inode := _inode(folder))}
    below = (file.relative_to(root / start) for file in _files_below(root / start, visited))
    return sorted((start / file).as_posix() for file in below if _fits(file.parts, wild))


def _files_below(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the regular files in a folder and all folders below it, following links; each folder is read once.

    Pipes are left out because reading them would wait. Two links to a folder above them would lead to 2^40 paths.
    """
    for place, folders, files in os.walk(folder, followlinks=True):
        inode = _inode(place)
        if inode is None or inode in visited:
            folders.clear()
            continue
        visited.add(inode)
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(place, name)), name))  # links after real folders
        for name in files:
            if not name.startswith(".") and not name.endswith(".pyc") and (path := Path(place, name)).is_file():
                yield path


def _inode(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[place:], pattern[1:]) for place in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


class _File(NamedTuple):
    """A file's digest and, for Python, its imports (dots, name), its top-level names, and its syntax error, if any."""

    sha: bytes
    digest: str
    imports: tuple[tuple[int, str], ...] = ()
    bindings: frozenset[str] = frozenset()
    broken: str = ""


_CACHE: dict[tuple[str, bytes], _File] = {}


def digest_of(content: bytes, name: str) -> str:
    """Return the digest of a file for keys, 16 hex digits, from its content and name (`.py`: by its syntax tree)."""
    return _file(content, name).digest


def _read(path: Path) -> _File:
    return _file(path.read_bytes(), path.name)


def _file(content: bytes, name: str) -> _File:
    digest = hashlib.sha256(content)
    plain, key = _File(digest.digest(), digest.hexdigest()[:LENGTH]), (name, digest.digest())
    if not name.endswith(".py"):
        return plain
    if key not in _CACHE:
        try:
            _CACHE[key] = _python(plain.sha, ast.parse(content, name))
        except (SyntaxError, ValueError) as error:  # a template, say; running it will report the error
            _CACHE[key] = plain._replace(broken=str(error))
    return _CACHE[key]


def _python(sha: bytes, tree: ast.Module) -> _File:
    imports: dict[tuple[int, str], None] = {}
    for node in _run(tree):
        if isinstance(node, ast.Import):
            imports |= dict.fromkeys((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # `from .a import b` may import `.a.b`
            base = node.module or ""
            names = (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names))
            imports |= dict.fromkeys((node.level, name) for name in names)
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    bound = {name for node in tree.body for name in _bound(node)}
    digest = hashlib.sha256(ast.dump(tree).encode(errors="surrogatepass")).hexdigest()[:LENGTH]
    return _File(sha, digest, tuple(imports), frozenset(bound))


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a syntax node and all nodes below it, except code that only type checkers see."""
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        children = iter(node.orelse)
    for child in children:
        yield from _run(child)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, _DOCUMENTED):
        yield node.name
    else:
        for each in ast.walk(node):  # rather too many names than too few
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id
            elif isinstance(each, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _bound(each)
