"""Draw all figures of a database into files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ablation.contract.atomic import replacing
from ablation.contract.errors import ConfigError
from ablation.judge.verdicts import judge_study
from ablation.show import figure_kinds as kinds
from ablation.show.figure_style import RC
from ablation.show.forest import Against, Order, draw_forest
from ablation.show.tables import build_table, primary_label
from ablation.show.text import variant_tree
from ablation.store.database import Store

DATED = {"svg": "Date", "pdf": "CreationDate"}  # formats that would contain the time, and the name of its entry
FOREST = "forest"


def render_figures(
    database: Path,
    reports_dir: Path,
    formats: Sequence[str] = ("svg",),
    style: Path | None = None,
    *,
    against: Against = "parent",
    order: Order = "tree",
) -> list[Path]:
    """Write the forest plot, the curves and all other figures to `<reports_dir>/<study>/`; return the paths.

    A study without declared curves has no figure of curves, and one without comparisons has no forest plot.

    Args:
        database: the tracker's database.
        reports_dir: the folder of reports.
        formats: suffixes of formats that matplotlib can write.
        style: a matplotlib style sheet to apply on top of the tracker's own.
        against: `parent` or `root`, the baseline of the forest plot (`ablation.show.forest.forest_rows`).
        order: `tree` or `effect`, the order of its rows.

    Raises ConfigError if the style sheet cannot be read.
    """
    written: list[Path] = []
    with Store(database) as store, mpl.rc_context(RC | _style(style)):
        for study in store.studies():
            draws = _figures(store, study)
            if any(variant.parent is not None for variant in store.variants(study)):
                draws[FOREST] = partial(forest, store, study, against, order)
            for name, draw in draws.items():
                written += _save(draw(), reports_dir / study / name, formats, exact=name == FOREST)
    return written


def forest(store: Store, study: str, against: Against = "parent", order: Order = "tree") -> Figure:
    """Return the forest plot of a study. Raises TrackerError if the study has no comparison."""
    table = build_table(store, study)
    judged = judge_study(store, study)
    figure = draw_forest(judged, primary_label(table, judged.measurements.analysis), against, order).figure
    assert isinstance(figure, Figure)
    return figure


def _style(file: Path | None) -> dict[Any, Any]:
    if file is None:
        return {}
    try:
        return {**mpl.rc_params_from_file(file, fail_on_error=True, use_default_template=False)}
    except (OSError, ValueError, KeyError) as error:
        remedy = "name a matplotlib style sheet, with lines such as `font.size: 8`"
        raise ConfigError("figures", "--style", str(file), f"cannot be read ({error})", remedy) from None


def _figures(store: Store, study: str) -> dict[str, Callable[[], Figure]]:
    """Return {name of a figure: function that draws the figure} of a study."""
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


def _save(figure: Figure, stem: Path, formats: Sequence[str], *, exact: bool) -> list[Path]:
    """Write the files of one figure, without dates, so that equal figures have equal bytes; return the paths.

    exact: keep the size of the figure; otherwise, extend it to everything that was drawn.
    """
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    for kind, path in zip(formats, paths, strict=True):
        with replacing(path) as file, mpl.rc_context({"savefig.bbox": "standard"} if exact else {}):
            figure.savefig(file, format=kind, metadata={DATED[kind]: None} if kind in DATED else None)
    return paths
