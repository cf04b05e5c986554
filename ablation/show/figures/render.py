"""All figures of a database as files; what shows the same as before is not drawn again."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.contract.atomic import write_json
from ablation.contract.reading import read_json
from ablation.show.figures import files
from ablation.show.figures.curves import draw_curves
from ablation.show.figures.declared import declared_figures
from ablation.show.figures.metric import draw_metric
from ablation.show.figures.sheet import Sheet
from ablation.show.figures.tree import draw_tree
from ablation.show.lineage import lineage
from ablation.show.tables import build_table
from ablation.store.database import Store

DRAWN = ".figures.json"  # beside the figures: what each shows, {name: {sheet, svg, png}}, all of them digests


def render_figures(database: Path, reports_dir: Path) -> list[Path]:
    """Write `<reports_dir>/<study>/{curves,metric,lineage}.{svg,png}` and the study's own figures; return the paths.

    A study without curves has no such figure; one whose curves nothing has logged yet has one that says so. A figure is
    drawn where its files are not those of the very same picture; else they only get the time of now, for Snakemake.
    """
    written: list[Path] = []
    with Store(database) as store:
        for study in store.studies():
            folder = reports_dir / study
            drawn, known = _read(folder / DRAWN), {}
            for name, sheet in _sheets(store, study):
                stem, digest = folder / name, files.digest(sheet)
                if drawn.get(name) != _account(stem, digest):
                    files.save(sheet, stem)
                known[name] = _account(stem, digest)
                written += [stem.with_suffix(".svg"), stem.with_suffix(".png")]
            write_json(folder / DRAWN, known)
    for path in written:
        os.utime(path)
    return written


def _sheets(store: Store, study: str) -> Iterator[tuple[str, Sheet]]:
    definition, nodes = store.study(study), lineage(store.variants(study))
    title = f"{definition.title} ({store.meta()['scale']} scale)"
    yield "metric", draw_metric(build_table(store, study), definition.analysis)
    yield "lineage", draw_tree(definition.title, nodes)
    if curves := definition.curves:
        yield "curves", draw_curves(title, curves, nodes, store.curves(study, [curve.metric for curve in curves]))
    yield from declared_figures(store, study).items()


def _account(stem: Path, digest: str) -> dict[str, str | None]:
    """The picture that the files are to show, and the files as they are."""
    return {"sheet": digest} | {kind: _file_digest(stem.with_suffix(f".{kind}")) for kind in ("svg", "png")}


def _file_digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}  # then everything is drawn
    return found if isinstance(found, dict) else {}
