"""All figures of a database as files; a study of which nothing has changed is not drawn again."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ablation.contract.atomic import replacing, write_json
from ablation.contract.reading import read_json
from ablation.show import figure_kinds as kinds
from ablation.show.figure_style import RC
from ablation.show.tables import build_table
from ablation.show.text import lineage
from ablation.store.database import Store

DRAWN = ".figures.json"  # next to the figures: digests of their data and of each file
DATED = {"svg": "Date", "pdf": "CreationDate"}  # formats that would hold the time, and where


def render_figures(database: Path, reports_dir: Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Write `<reports_dir>/<study>/{curves,metric,lineage}.svg` and the study's own figures; return the paths.

    A study without curves has no such figure; one whose curves nothing has logged yet has one that says so. Where the
    data and the code are unchanged, only the modification times of a study's files are updated, for Snakemake.
    """
    written: list[Path] = []
    with Store(database) as store, mpl.rc_context(RC):
        for study in store.studies():
            folder = reports_dir / study
            digest, known = digest_of(store, study), _read(folder / DRAWN)
            kept = known["files"] if known.get("from") == digest else {}
            figures = _figures(store, study)
            names = [f"{name}.{kind}" for name in figures for kind in formats]
            if any(kept.get(name, "") != _digest(folder / name) for name in names):
                for name, draw in figures.items():
                    _save(draw(), folder / name, formats)
                write_json(folder / DRAWN, {"from": digest, "files": kept | {n: _digest(folder / n) for n in names}})
            written += [folder / name for name in names]
    for path in written:
        os.utime(path)
    return written


def digest_of(store: Store, study: str) -> str:
    """Return a digest of everything that a study's figures show, and of the code that draws them."""
    known = hashlib.sha256(mpl.__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        known.update(path.read_bytes())
    definition, scale = store.study(study), store.meta()["scale"]
    known.update(f"{scale}{definition.model_dump_json()}".encode())
    known.update("".join(variant.model_dump_json() for variant in store.variants(study)).encode())
    known.update(store.runs(study)[["variant", "seed", "state", "reason"]].to_csv().encode())
    for table in ("metrics", "items"):
        own = "key IN (SELECT key FROM run_stages WHERE study = ?)"
        query = f"SELECT sum(hash(t)::HUGEINT) FROM {table} AS t WHERE {own}"
        known.update(repr(store.rows(query, [study])[1]).encode())
    return known.hexdigest()


def _figures(store: Store, study: str) -> dict[str, Callable[[], Figure]]:
    """The function that draws each figure of a study, by name."""
    definition, nodes = store.study(study), lineage(store.variants(study))
    scale = f"({store.meta()['scale']} scale)"
    names = [node.name for node in nodes]
    found: dict[str, Callable[[], Figure]] = {
        "metric": lambda: kinds.draw_metric(build_table(store, study), definition.analysis),
        "lineage": partial(kinds.draw_tree, definition.title, nodes),
    }
    if curves := definition.curves:
        metrics = [curve.metric for curve in curves]
        title = f"{definition.title} {scale}"
        found["curves"] = lambda: kinds.draw_curves(title, curves, nodes, store.curves(study, metrics))
    for figure in definition.figures:
        chosen = [name for name in names if name in figure.variants] if figure.variants else names
        draw = getattr(kinds, f"draw_{figure.kind}")
        found[figure.name] = partial(draw, store, study, figure, chosen, f"{figure.title} {scale}")
    return found


def _save(figure: Figure, stem: Path, formats: Sequence[str]) -> None:
    """Write the files of one figure, without dates, so that the same figure gives the same bytes."""
    for kind in formats:
        with replacing(stem.with_name(f"{stem.name}.{kind}")) as file:
            figure.savefig(file, format=kind, metadata={DATED[kind]: None} if kind in DATED else None)


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}  # then everything is drawn
