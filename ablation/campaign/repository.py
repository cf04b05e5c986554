"""The git repository of a campaign, which identifies the code of a commit and gives each run a separate folder."""

import ast
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ablation.contract.code import digest_of
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import sha256

_AUTHOR = ("-c", "user.name=ablation", "-c", "user.email=ablation@localhost")
# A trial may leave a hook or a replaced object, which would change the champion's checkout too.
_GIT = ("git", "--no-replace-objects", "--literal-pathspecs", "-c", "core.hooksPath=/dev/null")
_OF_HOOKS = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"}


def environment() -> dict[str, str]:
    """Return this process's environment without the variables that would point git to another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}


class Repository:
    """The git repository of a campaign.

    `root` is its working tree. `folder` is the campaign's folder, which `git reset` and `git clean` spare.
    """

    def __init__(self, place: Path) -> None:
        """Find the git repository that contains a folder.

        Raises ConfigError if no repository does, TrackerError if git fails.
        """
        self.root = place
        paths = ("--show-toplevel", "--git-dir", "--git-path", "info/exclude")
        try:
            top, own, exclude = self.git("rev-parse", *paths).splitlines()
        except (TrackerError, ValueError) as error:
            if isinstance(error, TrackerError) and "not a git repository" not in str(error):
                raise
            remedy = "change to a repository, or create one with `git init; git add -A; git commit`"
            raise ConfigError(place.absolute(), "", None, "is not in a git repository", remedy) from None
        self.folder = (place / own).resolve() / "ablation-campaign"  # of this worktree
        self.root, self._exclude = Path(top), (place / exclude).resolve()

    def git(self, *arguments: str, index: Path | None = None) -> str:
        """Return the output of a git command. Raises TrackerError with git's error message."""
        own = environment() | {"LC_ALL": "C"} | ({"GIT_INDEX_FILE": str(index)} if index else {})
        try:
            done = subprocess.run([*_GIT, "-C", str(self.root), *arguments], capture_output=True, check=True, env=own)
        except FileNotFoundError:
            raise TrackerError("git is not installed; install it") from None
        except subprocess.CalledProcessError as error:
            said = one_line(error.stderr.decode(errors="replace"), 300)
            raise TrackerError(f"git {arguments[0]}: {said or error}") from None
        return done.stdout.decode(errors="surrogateescape")

    def commit(self, name: str) -> str:
        """Return the full hash of a commit. Raises ConfigError if the commit does not exist."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
        except TrackerError:
            problem, remedy = "is not a commit of this repository", "fetch it, or make a first commit if there is none"
            raise ConfigError(self.root, "", name, problem, remedy) from None

    def snapshot(self) -> tuple[str, list[str]]:
        """Return a commit of the working tree (HEAD if nothing has changed), and the files with uncommitted changes."""
        head = self.commit("HEAD")
        status = self.git("status", "--porcelain", "-z", "--ignore-submodules=none").split("\0")
        files = [entry[3:] for entry in status if entry[2:3] == " "]
        if not files:
            return head, []
        index = self.folder / f"index-{os.getpid()}"
        try:
            self.git("read-tree", head, index=index)
            self.git("add", "-A", index=index)
            tree = self.git("write-tree", index=index).strip()
        finally:
            index.unlink(missing_ok=True)
        return self.git(*_AUTHOR, "commit-tree", tree, "-p", head, "-m", "uncommitted changes").strip(), files

    def identity(self, base: str, commit: str) -> str:
        """Return a digest of the changes from `base` to a commit; commits with equal code have the same digest.

        Comments, docstrings and layout of Python files do not count.
        """
        words = ("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none")
        fields = self.git(*words, base, commit).split("\0")[:-1]
        rows = []
        for entry, path in zip(fields[::2], fields[1::2], strict=True):
            old_mode, mode, old, new, _ = entry.removeprefix(":").split(" ")
            before, after = self._digest(old, path), self._digest(new, path)
            if (before, old_mode) != (after, mode):
                rows.append(f"{path}\0{mode}\0{after}\n")
        return hashlib.sha256("".join(rows).encode(errors="surrogateescape")).hexdigest()[:16]

    def added(self, base: str, commit: str) -> list[str]:
        """Return the files that a commit adds to those of `base`."""
        words = ("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=A", "--name-only")
        return self.git(*words, base, commit).split("\0")[:-1]

    def _digest(self, blob: str, path: str) -> str:
        if not path.endswith(".py") or not blob.strip("0"):
            return blob
        return digest_of(self.git("cat-file", "blob", blob).encode(errors="surrogateescape"), Path(path).name)

    def checkout(self, commit: str, slot: int, links: Iterable[str]) -> Path:
        """Return a new worktree of a commit, with links to some paths of the main folder."""
        place = self.folder / f"worktree-{slot}"
        shutil.rmtree(place, ignore_errors=True)  # the run before may have changed its `.git`, too
        self.git("worktree", "add", "--quiet", "--force", "--detach", str(place), self.commit(commit))
        for link in links:
            target = place / link
            if target.is_dir() and not any(target.iterdir()):
                target.rmdir()  # a submodule's
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(self.root / link)
        return place

    def remember(self, commit: str, tag: str = "") -> None:
        """Keep a commit even if the loop resets its branch; with `tag`, also tag it."""
        self.git("update-ref", f"refs/ablation/{commit[:16]}", commit)
        if tag:
            self.git("tag", "--force", tag, commit)

    def ignore(self, names: Iterable[str]) -> None:
        """Make git ignore files, so that no trial commits them and no reset removes them."""
        self._exclude.parent.mkdir(exist_ok=True)
        known = self._exclude.read_text(encoding="utf-8").splitlines() if self._exclude.exists() else []
        lines = dict.fromkeys([*known, *(f"/{name}" for name in names)])
        self._exclude.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def tracked(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that are files or folders in HEAD."""
        return [path for path in paths if ".." not in path and self.git("ls-tree", "HEAD", "--", path.rstrip("/"))]


def imported(files: Iterable[Path]) -> set[str]:
    """Return the top-level modules that Python files import."""
    found: set[str] = set()
    for file in files:
        with suppress(OSError, ValueError, SyntaxError):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Import):
                    found |= {each.name.partition(".")[0] for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found


def files_below(place: Path) -> dict[str, str]:
    """Return {path: digest} of a file, or of all files of a folder except caches; links are followed."""
    if place.is_file():
        return {"": sha256(place)}
    found: dict[str, str] = {}
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__" and os.path.realpath(folder) not in seen]
        seen.add(os.path.realpath(folder))
        files = (Path(folder, name) for name in names)
        found |= {file.relative_to(place).as_posix(): sha256(file) for file in files if file.is_file()}
    return found
