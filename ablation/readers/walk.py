"""Which files of a folder are read: the one walk of every reader of evaluations and runs."""

import os
import re
import stat
from collections.abc import Callable, Sequence
from fnmatch import translate
from pathlib import Path

from ablation.config.formats import FORMATS
from ablation.contract.display import listed, one_line

_NEVER_DATA = (".git", ".DS_Store", ".trash")  # not even counted; the last is MLflow's, whose reader names it
_NOT_DATA = {"__MACOSX", "__pycache__"}
_BACKUP = re.compile(r"(?P<of>.+)(?:~|\.(?:bak|orig|tmp|swp|part|partial|crdownload))|tmp-checkpoint-\d+")
_COPY = re.compile(r"(?P<of>.+?)(?:-checkpoint|-Copy\d*| - Copy| copy)?(?: ?\(\d+\)| \d+)?(?P<suffix>(?:\.\w+)?)")
_LATEST = ("latest", "last")  # links that writers keep to their last folder; not worth a word
_Inode = tuple[int, int]


def is_aside(name: str) -> bool:
    """Whether a file or folder of this name is hidden, or a temporary or backup copy: `.x`, `x.bak`, `x~`."""
    return name.startswith(".") or name in _NOT_DATA or _BACKUP.fullmatch(name) is not None


def files_below(
    root: Path,
    patterns: Sequence[str],
    problem: Callable[[str], None],
    *,
    depth: int | None = None,
    others: list[Path] | None = None,
) -> list[Path]:
    """Return the regular files below a folder whose names fit a pattern, sorted; `depth` 1: of the folder itself.

    Links to files and folders are followed, and each file is read once: at its own place if that is below the folder. A
    link to a folder that contains the link or the start of the walk is a circle. Hidden files and folders and temporary
    or backup copies are left out, as is a copy `x (1).csv` beside `x.csv`. `problem` is told what was left out, a line
    for each reason. `others` gets the files of other names.
    """
    walk = _Walk(root, re.compile("|".join(map(translate, patterns))), depth)
    walk.run()
    if others is not None:
        others += sorted(walk.others)
    for reason, places in walk.left_out.items():
        shown = listed([one_line(place, 80) for place in sorted(places)])
        problem(f"{root}: {len(places):,} left out ({reason}): {shown}")
    return sorted(walk.matches)


def files_of(format: str, path: Path, problem: Callable[[str], None]) -> list[Path]:
    """Return the files of a format at a path: the file itself, or those below a folder."""
    return files_below(path, FORMATS[format].patterns, problem) if path.is_dir() else [path]


_HIDDEN = "hidden, or temporary or backup copies"
_COPIES = "copies of files beside them"
_TWICE = "links to what is read without them"
_CIRCLE = "links to a folder that holds them"
_BROKEN = "links to nothing"
_UNREADABLE = "folders that cannot be read"
_NO_FILES = "no regular files"


class _Walk:
    def __init__(self, root: Path, fits: re.Pattern[str], depth: int | None) -> None:
        self.root, self.fits, self.depth = root, fits, depth
        self.matches: list[Path] = []
        self.others: list[Path] = []
        self.left_out: dict[str, list[str]] = {}
        self._files: set[_Inode] = set()
        self._folders: set[_Inode] = set()
        self._links: list[tuple[Path, int]] = []  # to folders, with their depth
        self._file_links: list[tuple[Path, _Inode]] = []
        self._starts: list[Path] = []

    def run(self) -> None:
        """Visit real files first, then links in the order of their names, so that no link takes the place of a file."""
        self._below(self.root, 1)
        while self._links:
            self._links.sort(reverse=True)
            link, depth = self._links.pop()
            target = link.resolve()
            if link.parent.resolve().is_relative_to(target) or any(target in start.parents for start in self._starts):
                self._leave(link, _CIRCLE)
            elif _inode(target.stat()) in self._folders:
                if not link.name.startswith(_LATEST):
                    self._leave(link, _TWICE)
            else:
                self._below(link, depth)
        for link, inode in sorted(self._file_links):
            if inode in self._files:
                self._leave(link, _TWICE)
            else:
                self._files.add(inode)
                self.matches.append(link)

    def _below(self, start: Path, depth: int) -> None:
        self._starts.append(start.resolve())
        self._folders.add(_inode(start.stat()))
        folders = [(start, depth)]
        while folders:
            place, depth = folders.pop()
            names, inner = self._folder(place, depth)
            copies = {name for name in names if _is_copy(name, names)}
            for name in sorted(copies):
                self._leave(place / name, _COPIES)
            self.matches += [place / name for name in names if name not in copies]
            for folder in inner:
                inode = _inode(folder.stat())
                if inode not in self._folders:
                    self._folders.add(inode)
                    folders.append((folder, depth + 1))

    def _folder(self, place: Path, depth: int) -> tuple[set[str], list[Path]]:
        """Return the names of the files that fit, and the folders; links wait until all else was read."""
        names: set[str] = set()
        folders: list[Path] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    deeper = self.depth is None or depth < self.depth
                    if is_aside(entry.name):
                        self._aside(entry, deeper=deeper)
                    elif entry.is_symlink():
                        self._link(Path(entry), depth, deeper=deeper)
                    elif entry.is_dir():
                        folders += [Path(entry)] if deeper else []
                    elif self.fits.match(entry.name):
                        if entry.is_file():
                            names.add(entry.name)
                            self._files.add(_inode(entry.stat()))
                        else:
                            self._leave(Path(entry), _NO_FILES)
                    else:
                        self.others.append(Path(entry))
        except OSError:
            self._leave(place, _UNREADABLE)
        return names, folders

    def _link(self, link: Path, depth: int, *, deeper: bool) -> None:
        try:
            status = link.stat()
        except OSError:
            self._leave(link, _BROKEN)
            return
        if stat.S_ISDIR(status.st_mode):
            self._links += [(link, depth + 1)] if deeper else []
        elif self.fits.match(link.name):
            if stat.S_ISREG(status.st_mode):
                self._file_links.append((link, _inode(status)))
            else:
                self._leave(link, _NO_FILES)
        else:
            self.others.append(link)

    def _aside(self, entry: os.DirEntry[str], *, deeper: bool) -> None:
        """Note a file that would have been read but for its name, or such files in a folder."""
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


def _is_copy(name: str, names: set[str]) -> bool:
    match = _COPY.fullmatch(name)
    return match is not None and (original := match["of"] + match["suffix"]) != name and original in names


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino
