"""All figures of a database as files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from ablation.contract.atomic import replacing
from ablation.show import figure_kinds as kinds
from ablation.show.figure_style import RC
from ablation.show.tables import build_table
from ablation.show.text import variant_tree
from ablation.store.database import Store

DATED = {"svg": "Date", "pdf": "CreationDate"}  # formats that would hold the time, and where


def render_figures(database: Path, reports_dir: Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Write `<reports_dir>/<study>/{curves,metric,variant-tree}.svg` and the study's own figures; return the paths.

    A study without curves has no such figure; one whose curves nothing has logged yet has one that says so.
    """
    written: list[Path] = []
    with Store(database) as store, mpl.rc_context(RC):
        for study in store.studies():
            for name, draw in _figures(store, study).items():
                written += _save(draw(), reports_dir / study / name, formats)
    return written


def _figures(store: Store, study: str) -> dict[str, Callable[[], Figure]]:
    """The function that draws each figure of a study, by name."""
    definition, nodes = store.study(study), variant_tree(store.variants(study))
    scale = f"({store.meta()['scale']} scale)"
    names = [node.name for node in nodes]
    draws: dict[str, Callable[[], Figure]] = {
        "metric": lambda: kinds.draw_metric(build_table(store, study), definition.analysis),
        "variant-tree": partial(kinds.draw_tree, definition.title, nodes),
    }
    if curves := definition.curves:
        metrics = [curve.metric for curve in curves]
        title = f"{definition.title} {scale}"
        draws["curves"] = lambda: kinds.draw_curves(title, curves, nodes, store.curves(study, metrics))
    for figure in definition.figures:
        chosen = [name for name in names if name in figure.variants] if figure.variants else names
        draw = getattr(kinds, f"draw_{figure.kind}")
        draws[figure.name] = partial(draw, store, study, figure, chosen, f"{figure.title} {scale}")
    return draws


def _save(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write the files of one figure, without dates, so that the same figure gives the same bytes."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for kind, path in zip(formats, paths, strict=True):
        with replacing(path) as file:
            figure.savefig(file, format=kind, metadata={DATED[kind]: None} if kind in DATED else None)
    return paths
