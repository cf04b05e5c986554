"""Read the prompts and responses of items from the folders of stages; see `ablation.contract.samples`.

These texts are too large for the database, and a page quotes only a few. If a file is missing, damaged or invalid, only
its texts are missing. Any program may have written the files, so they are not trusted and never read whole.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ablation.contract.command import OUTPUT
from ablation.contract.display import one_line
from ablation.contract.reading import regular
from ablation.contract.samples import FILE, PLACE, TEXTS, cut
from ablation.store.database import Run, Store

Place = tuple[str, str]  # subset, item
_LARGEST = 256 << 20  # bytes of a file
_MOST_COLUMNS = 16
_MOST_ROWS = 64  # of an item
_BATCH = 256  # rows in memory at once
_UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, RecursionError)


class Response(NamedTuple):
    """A judged response, with its non-empty texts and its numbers (without NaN) by name."""

    protocol: str
    texts: dict[str, str]
    numbers: dict[str, float]


@dataclass
class Samples:
    """The texts of a study's runs.

    `files` has the paths where a run's texts may be, of which the first that exists is read. `problems` states why the
    texts of a run could not be read.
    """

    files: Mapping[Run, tuple[Path, ...]]
    problems: dict[Run, str] = field(default_factory=dict)
    _items: dict[Run, Set[Place]] = field(default_factory=dict)

    def places(self, run: Run) -> Set[Place]:
        """Return (subset, item) of each item of a run that has texts."""
        if run not in self._items:
            self._items[run] = {
                place
                for batch in self._batches(run, ["subset", "item"])
                for place in zip(batch["subset"].to_pylist(), batch["item"].to_pylist(), strict=True)
            }
        return self._items[run]

    def read(self, run: Run, wanted: Set[Place], longest: int) -> dict[Place, list[Response]]:
        """Return the responses to the wanted items of a run, with texts of at most `longest` characters."""
        texts: dict[Place, list[Response]] = {}
        items = pa.array(sorted({item for _, item in wanted}), pa.large_string())
        for batch in self._batches(run, None):
            chosen = batch.filter(pc.is_in(batch["item"].cast(pa.large_string()), items))
            for row in chosen.to_pylist():
                responses = texts.setdefault((row["subset"], row["item"]), [])
                if (row["subset"], row["item"]) in wanted and len(responses) < _MOST_ROWS:
                    responses.append(_response(row, longest))
        return {place: responses for place, responses in texts.items() if place in wanted}

    def _batches(self, run: Run, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        path = next((path for path in self.files.get(run, ()) if path.exists()), None)
        if path is None or run in self.problems:
            return
        try:
            with _opened(path) as file:
                yield from file.iter_batches(_BATCH, columns=columns, use_threads=False)
        except _UNREADABLE as error:
            self.problems[run] = one_line(error, 200)


def study_samples(store: Store, study: str) -> Samples:
    """Return the texts of a study's runs that succeeded.

    They are in stage folders beside the database, or else at the paths that the database records.
    """
    _, rows = store.rows(
        "SELECT f.variant, f.seed, s.dir FROM finals f JOIN stages s USING (key) WHERE f.study = ? ORDER BY ALL",
        [study],
    )
    files: dict[Run, tuple[Path, ...]] = {}
    for variant, seed, folder in rows:
        recorded = Path(folder or "")
        parts = recorded.parts[-4:]  # stages/STUDY/STAGE/KEY, or imported/STUDY/RUN/outcome
        if len(parts) == 4 and ".." not in parts:
            places = (store.path.parent.joinpath(*parts), recorded)
            files[variant, int(seed)] = tuple(place / name for place in places for name in (FILE, f"{OUTPUT}/{FILE}"))
    return Samples(files)


def _opened(path: Path) -> pq.ParquetFile:
    if (size := regular(path).stat().st_size) > _LARGEST:
        raise OSError(f"the file has {size:,} bytes, but the limit is {_LARGEST:,}")
    file = pq.ParquetFile(path, page_checksum_verification=True)
    schema = file.schema_arrow
    if missing := [name for name in PLACE if schema.names.count(name) != 1 or not _is_text(schema.field(name).type)]:
        found = "occurs more than once or does not hold text" if missing[0] in schema.names else "is missing"
        raise ValueError(f"column {missing[0]} {found}")
    if len(schema.names) > _MOST_COLUMNS:
        raise ValueError(f"the file has {len(schema.names)} columns, but the limit is {_MOST_COLUMNS}")
    return file


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _response(row: Mapping[str, object], longest: int) -> Response:
    names = [*TEXTS, *(name for name in row if name not in (*PLACE, *TEXTS))]
    texts = {name: cut(value, longest) for name in names if isinstance(value := row.get(name), str) and value}
    numbers = {
        name: float(value)
        for name in names
        if isinstance(value := row.get(name), int | float) and value == value  # noqa: PLR0124 - not NaN
    }
    return Response(str(row["protocol"]), texts, numbers)
