"""Find the files in a folder that a reader reads, and report the files that are left out."""

import os
import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from pathlib import Path

from ablation.config.formats import FORMATS
from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError

_NEVER_DATA = (".git", ".DS_Store", ".trash")  # not even counted; the last is MLflow's, whose reader names it
_NOT_DATA = {"__MACOSX", "__pycache__"}
_BACKUP = re.compile(r"(?P<of>.+)(?:~|\.(?:bak|orig|tmp|swp|part|partial|crdownload))|tmp-checkpoint-\d+")
_COPY = re.compile(r"(?P<of>.+?)(?:-checkpoint|-Copy\d*| - Copy| copy)?(?: ?\(\d+\)| \d+)?(?P<suffix>(?:\.\w+)?)")
_LATEST = ("latest", "last")  # links that writers keep to their last folder; not worth a word


def is_aside(name: str) -> bool:
    """Return whether a file or folder of this name is hidden, or a temporary or backup copy: `.x`, `x.bak`, `x~`."""
    return name.startswith(".") or name in _NOT_DATA or _BACKUP.fullmatch(name) is not None


def files_below(
    root: Path,
    patterns: Sequence[str],
    problem: Callable[[str], None],
    *,
    depth: int | None = None,
    others: list[Path] | None = None,
) -> list[Path]:
    """Return the regular files below a folder whose names match a pattern, sorted.

    Links to files and folders are followed. Each file is returned once, by its own path if that is below the folder.
    Hidden files and folders and temporary or backup copies are left out. `problem` gets a line for each reason to leave
    files out. `depth`: 1 for only the files in the folder itself. `others` is extended by the files with other names.

    Raises ConfigError for a link to a folder that contains the link, and for a copy such as `x (1).csv` beside `x.csv`.
    """
    walk = _Walk(root, re.compile("|".join(map(translate, patterns))), depth)
    walk.run()
    if others is not None:
        others += sorted(walk.others)
    for reason, places in walk.left_out.items():
        shown = listed([one_line(place, 80) for place in sorted(places)])
        problem(f"{root}: {reason} are left out ({len(places):,}): {shown}")
    return sorted(walk.matches)


def files_of(format: str, path: Path, problem: Callable[[str], None]) -> list[Path]:
    """Return the files of a format at a path: the file itself, or the matching files below a folder."""
    return files_below(path, FORMATS[format].patterns, problem) if path.is_dir() else [path]


_HIDDEN = "hidden files, temporary files or backup copies"
_TWICE = "links to files that are read anyway"
_BROKEN = "broken links"
_UNREADABLE = "folders that cannot be read"
_NO_FILES = "pipes, devices and other special files"


class _Walk:
    def __init__(self, root: Path, fits: re.Pattern[str], depth: int | None) -> None:
        self.root, self.fits, self.depth = root, fits, depth
        self.matches: list[Path] = []
        self.others: list[Path] = []
        self.left_out: dict[str, list[str]] = {}
        self._read: set[Path] = set()  # real paths
        self._links: list[tuple[Path, int]] = []  # with the depth of their folder

    def run(self) -> None:
        """Visit files first, then links in the order of their names, so that no link replaces a file."""
        self._below(self.root, 1)
        while self._links:
            self._links.sort(reverse=True)
            self._link(*self._links.pop())

    def _below(self, start: Path, depth: int) -> None:
        folders = [(start, depth)]
        while folders:
            place, depth = folders.pop()
            real = place.resolve()
            if real not in self._read:
                self._read.add(real)
                folders += [(folder, depth + 1) for folder in self._folder(place, real, depth)]

    def _folder(self, place: Path, real: Path, depth: int) -> list[Path]:
        """Record the files of a folder, and return its subfolders; links are kept for later."""
        names: set[str] = set()
        folders: list[Path] = []
        deeper = self._goes_below(depth)
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if is_aside(entry.name):
                        self._aside(entry, deeper=deeper)
                    elif entry.is_symlink():
                        self._links.append((Path(entry), depth))
                    elif entry.is_dir():
                        folders += [Path(entry)] if deeper else []
                    elif not self.fits.match(entry.name):
                        self.others.append(Path(entry))
                    elif entry.is_file():
                        names.add(entry.name)
                    else:
                        self._leave(Path(entry), _NO_FILES)
        except OSError:
            self._leave(place, _UNREADABLE)
        for name in sorted(names):
            _refuse_copy(place, name, names)
            self._read.add(real / name)
            self.matches.append(place / name)
        return folders

    def _link(self, link: Path, depth: int) -> None:
        target = Path(os.path.realpath(link))  # of a link to itself, the link
        if target.is_dir():
            if not self._goes_below(depth):
                return
            if link.parent.resolve().is_relative_to(target):
                raise ConfigError(link, "", None, f"links to {target}, which contains the link", "remove the link")
            if target not in self._read:
                self._below(link, depth + 1)
            elif not link.name.startswith(_LATEST):
                self._leave(link, _TWICE)
        elif not os.path.exists(target):
            self._leave(link, _BROKEN)
        elif not self.fits.match(link.name):
            self.others.append(link)
        elif not target.is_file():
            self._leave(link, _NO_FILES)
        elif target in self._read:
            self._leave(link, _TWICE)
        else:
            self._read.add(target)
            self.matches.append(link)

    def _goes_below(self, depth: int) -> bool:
        return self.depth is None or depth < self.depth

    def _aside(self, entry: os.DirEntry[str], *, deeper: bool) -> None:
        """Record that a file with a hidden or backup name, or any matching file in such a folder, is left out."""
        if not entry.is_dir(follow_symlinks=False):
            named = _BACKUP.fullmatch(entry.name)
            plain = (named and named["of"]) or re.sub(r"^\.(?:_|~lock\.)?", "", entry.name)
            if self.fits.match(plain) and entry.name not in _NEVER_DATA:
                self._leave(Path(entry), _HIDDEN)
        elif deeper and entry.name not in _NEVER_DATA:
            for place, _, files in os.walk(entry.path):
                for name in filter(self.fits.match, files):
                    self._leave(Path(place, name), _HIDDEN)

    def _leave(self, path: Path, reason: str) -> None:
        shown = path.relative_to(self.root).as_posix() if path != self.root else "."
        self.left_out.setdefault(reason, []).append(shown)


def _refuse_copy(folder: Path, name: str, names: set[str]) -> None:
    match = _COPY.fullmatch(name)
    if match is not None and (original := match["of"] + match["suffix"]) != name and original in names:
        problem = f"looks like a copy of {original} in the same folder"
        raise ConfigError(folder / name, "", None, problem, "remove or rename one of them")
