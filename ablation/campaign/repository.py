"""The git repository of a campaign: which code a commit is, and a folder of its own for each run."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ablation.contract.code import digest_of
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError

_FOLDER = "ablation-campaign"  # below .git: worktrees, logs, lock
_AUTHOR = ("-c", "user.name=ablation", "-c", "user.email=ablation@localhost")


class Repository:
    """A repository. root: of the working tree; folder: the campaign's own, which no `git reset` or `clean` touches."""

    def __init__(self, place: Path) -> None:
        """Find the repository around a folder. Raises ConfigError if there is none."""
        self.root = place
        try:
            top, common = self.git("rev-parse", "--show-toplevel", "--git-common-dir").splitlines()
        except (TrackerError, ValueError):
            problem, remedy = (
                "is not in a git repository",
                "change to a repository, or create one: git init; git add -A; git commit",
            )
            raise ConfigError(place.absolute(), "", None, problem, remedy) from None
        self.folder = (place / common).resolve() / _FOLDER
        self.root = Path(top)

    def git(self, *arguments: str, at: Path | None = None, index: Path | None = None) -> str:
        """Return what a git command prints. Raises TrackerError with what it complains about."""
        environment = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index else {})}
        # A hook, which a trial may have left, would meet the champion's checkout too.
        words = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(at or self.root), *arguments]
        try:
            done = subprocess.run(words, capture_output=True, check=True, env=environment)
        except FileNotFoundError:
            raise TrackerError("git is not installed; install it") from None
        except subprocess.CalledProcessError as error:
            said = one_line(error.stderr.decode(errors="replace"), 300)
            raise TrackerError(f"git {arguments[0]}: {said or error}") from None
        return done.stdout.decode(errors="surrogateescape")

    def commit(self, name: str) -> str:
        """Return the full hash of a commit. Raises ConfigError if there is none."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
        except TrackerError:
            problem, remedy = "is not a commit of this repository", "make a first commit, or fetch the missing one"
            raise ConfigError(self.root, "", name, problem, remedy) from None

    def snapshot(self) -> tuple[str, list[str]]:
        """Return HEAD and no files; or, if there are uncommitted changes, a commit of them, and their files."""
        head = self.commit("HEAD")
        status = self.git("status", "--porcelain", "-z").split("\0")
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

    def changed(self, old: str, new: str, paths: Sequence[str] = ()) -> list[str]:
        """Return the files that differ between two commits, below these paths if any are given."""
        names = self.git("diff", "--name-only", "--no-renames", "-z", old, new, "--", *paths)
        return [name for name in names.split("\0") if name]

    def identity(self, base: str, commit: str) -> str:
        """Return a digest of what a commit changes of the base, by which equal code is known under any name.

        Comments, docstrings and layout of Python files do not count.
        """
        fields = self.git("diff-tree", "-r", "-z", "--no-renames", base, commit).split("\0")
        rows = []
        for entry, path in zip(fields[::2], fields[1::2], strict=False):
            old_mode, mode, old, new, _ = entry.removeprefix(":").split(" ")
            before, after = self._digest(old, path), self._digest(new, path)
            if (before, old_mode) != (after, mode):
                rows.append(f"{path}\0{mode}\0{after}\n")
        return hashlib.sha256("".join(rows).encode(errors="surrogateescape")).hexdigest()[:16]

    def _digest(self, blob: str, path: str) -> str:
        if not path.endswith(".py") or not blob.strip("0"):
            return blob
        content = self.git("cat-file", "blob", blob).encode(errors="surrogateescape")
        return digest_of(content, Path(path).name)

    def checkout(self, commit: str, slot: int, links: Iterable[str], hidden: Iterable[str]) -> Path:
        """Return a clean worktree of a commit.

        links: paths of the main folder that are linked into it; hidden: paths that are removed.
        """
        place, commit = self.folder / f"worktree-{slot}", self.commit(commit)
        if (place / ".git").exists():
            self.git("checkout", "--quiet", "--force", "--detach", commit, at=place)
            self.git("clean", "-ffdxq", at=place)
        else:
            shutil.rmtree(place, ignore_errors=True)
            self.git("worktree", "prune")
            self.git("worktree", "add", "--quiet", "--force", "--detach", str(place), commit)
        for link in links:
            target = place / link
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(self.root / link)
        for name in hidden:
            path = place / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return place

    def remember(self, commit: str, tag: str = "") -> None:
        """Keep a commit when the loop resets its branch; with a tag, under that name, too."""
        self.git("update-ref", f"refs/ablation/{commit[:16]}", commit)
        if tag:
            self.git("tag", "--force", tag, commit)

    def ignore(self, names: Iterable[str]) -> None:
        """Let git ignore the campaign's files, so that no trial commits them and no reset removes them."""
        path = self.folder.parent / "info" / "exclude"
        path.parent.mkdir(exist_ok=True)
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        new = [f"/{name}" for name in names if f"/{name}" not in known.splitlines()]
        if new:
            path.write_text(known + ("" if known.endswith("\n") or not known else "\n") + "\n".join(new) + "\n")

    def tracked(self, words: Iterable[str]) -> list[str]:
        """Return those of some words that are files or folders of HEAD."""
        named = [word for word in words if word and not word.startswith(("-", "/", ":")) and ".." not in word]
        return [word for word in named if self.git("ls-tree", "--name-only", "HEAD", "--", word.rstrip("/")).strip()]


def environment(seed_env: str, seed: int, devices: Sequence[str]) -> Mapping[str, str]:
    """Return the environment of a run."""
    own = {**({seed_env: str(seed)} if seed_env else {})}
    if devices:
        own |= {"CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**os.environ, **own}
