"""Read SQLite databases to which other programs may be writing, without creating files beside them."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.readers.run import Problem

_MAGIC = b"SQLite format 3\x00"
_WAL = 2  # byte 18 of the header of a database with a write-ahead log
_DAMAGE = sqlite3.DatabaseError, UnicodeDecodeError  # the second where SQLite's own message quotes data
_PATIENCE = 30.0  # seconds for which a writer may hold its lock


def is_sqlite(path: Path) -> bool:
    """Return whether a file is an SQLite database, by its first bytes. Raises OSError if the file cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only.

    SQLite creates files beside a database in write-ahead-log mode even when it only reads. Such a database is therefore
    opened as immutable if it has no log, and so no writer. If a log or a journal is left without a writer (it was
    killed, or the files were copied), a temporary copy is opened. Any other database is opened in place, under SQLite's
    own locks.

    Raises ConfigError if the file is not a database, is locked, cannot be opened, or lacks its end. In the last case
    SQLite would return partly invalid data, so its own tool (`.recover`) must extract what is left.
    """
    remedy = "name another file, or try again when the program that writes to this one has ended"
    with tempfile.TemporaryDirectory(prefix="ablation-import-") as scratch:
        try:
            with closing(_connect(path, Path(scratch))) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
                yield connection
        except (sqlite3.OperationalError, OSError) as error:
            raise ConfigError(path, "", None, f"cannot be read ({one_line(error, 200)})", remedy) from None
        except _DAMAGE as error:
            remedy = "name another file, or recover this one with `sqlite3 FILE .recover`"
            raise ConfigError(path, "", None, f"is damaged ({one_line(error, 200)})", remedy) from None


def _connect(path: Path, scratch: Path) -> sqlite3.Connection:
    with path.open("rb") as file:
        header = file.read(100)
    wal = header[18:19] == bytes([_WAL])
    log, shared, journal = (path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))
    if _empty(log) and _empty(journal):
        _check_length(path, header)
    if wal and _empty(log):
        return _opened(path, "mode=ro&immutable=1")
    if (wal and not shared.exists()) or (not wal and not _empty(journal)):
        return _opened(_copied(path, log if wal else journal, scratch), "mode=rw")
    try:
        connection = _opened(path, "mode=ro")
        connection.execute("PRAGMA user_version").fetchall()
    except sqlite3.OperationalError:
        if not wal:
            raise
        return _opened(_copied(path, log, scratch), "mode=rw")  # its folder must not be written to
    return connection


def _check_length(path: Path, header: bytes) -> None:
    if len(header) < 100:
        raise sqlite3.DatabaseError("the end of the file is missing")
    size, changes, pages, valid = (
        int.from_bytes(header[at:end]) for at, end in ((16, 18), (24, 28), (28, 32), (92, 96))
    )
    if changes == valid and path.stat().st_size < pages * (65536 if size == 1 else size):
        raise sqlite3.DatabaseError("the end of the file is missing")


def _opened(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=_PATIENCE)
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    return connection


def _empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0


def _copied(path: Path, beside: Path, scratch: Path) -> Path:
    shutil.copyfile(path, scratch / path.name)
    shutil.copyfile(beside, scratch / beside.name)
    return scratch / path.name


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns; an empty set for a missing table or a view, whose query may never end."""
    real = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
    if not connection.execute(real, [table]).fetchall():
        return set()
    return {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}


def rows(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], where: str, problem: Problem
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; if an error ends the query, report the error to `problem`."""
    try:
        yield from connection.execute(query, parameters)
    except _DAMAGE as error:
        problem(f"{where}: only the rows before an error are read ({one_line(error, 200)})")
