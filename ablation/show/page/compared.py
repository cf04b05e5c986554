"""The report page of evaluations that others wrote: drawn as a grid's is, from a database made for it.

write_comparison(comparison, out)
"""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from ablation.config.display_schema import ColumnDefinition, TableDefinition
from ablation.judge.compare.comparison import Comparison
from ablation.readers.sheet import short
from ablation.show.page.render import write_report
from ablation.store.evaluated import STAGE, write_evaluated
from ablation.store.stored_study import StoredStudy


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write the page; return `out`."""
    measured = comparison.measured
    analysis = measured.analysis
    formats = sorted({sheet.source.suffix.lstrip(".") for arm in comparison.arms.values() for sheet in arm.sheets})
    filters = sorted({sheet.filter for arm in comparison.arms.values() for sheet in arm.sheets} - {""})
    columns = [
        ColumnDefinition(metric=f"{analysis.protocol}/{subset}/{analysis.value}", label=subset)
        for subset in analysis.subsets
    ]
    digest = hashlib.sha256(analysis.model_dump_json().encode()).hexdigest()[:16]
    definition = StoredStudy(
        name=measured.name,
        title=measured.name,
        question=f"Does {analysis.value}{f' ({filters[0]})' if filters else ''} change?",
        source=f"evaluation files ({', '.join(formats)})",
        table=TableDefinition(columns=columns),
        analysis=analysis,
        analysis_digest=digest,
        published=None,
        last_stage=STAGE,
        analysis_history=[],
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "compared.duckdb"
        write_evaluated(database, definition, measured.variants, measured.values, measured.clusters)
        return write_report(database, out, {measured.name: _examples(comparison)})


def _examples(comparison: Comparison) -> list[dict[str, Any]]:
    """Items that changed most, with their words, for each edge that has some."""
    edges = []
    for found in comparison.compared:
        flips, edge = found.flips, found.edge
        items = [
            {
                "word": word,
                "item": short(flip.item),
                "subset": flip.subset,
                "before": f"{flip.before:.3g}",
                "after": f"{flip.after:.3g}",
                "seed": flip.seed if edge.seeds > 1 else None,
                "asked": flip.text.asked,
                "answers": [
                    (who, what)
                    for who, what in (
                        ("wanted", flip.text.wanted),
                        (edge.parent, flip.answer_before),
                        (edge.child, flip.text.answered),
                    )
                    if what
                ],
            }
            for word, of in (("improved", flips.best), ("got worse", flips.worst))
            for flip in of
        ]
        if items:
            counts = {"better": flips.better, "worse": flips.worse}
            edges.append({"child": edge.child, "parent": edge.parent, "items": items} | counts)
    return edges
