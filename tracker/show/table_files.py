"""The comparison tables of a database as files."""

from pathlib import Path

from contract.atomic import write_text
from tracker.show.table_formats import to_csv, to_html, to_latex, to_markdown, to_runs_csv
from tracker.show.tables import build_table
from tracker.store.database import Store


def render_tables(database: Path, reports_dir: Path) -> list[Path]:
    """Write `<reports_dir>/<study>/{table.md,table.csv,table.tex,table.html,runs.csv}`; return the paths written."""
    written = []
    with Store(database) as store:
        for study in store.studies():
            table = build_table(store, study)
            texts = {"table.md": to_markdown(table), "table.csv": to_csv(table), "table.tex": to_latex(table)}
            texts |= {
                "table.html": to_html(table),
                "runs.csv": to_runs_csv(study, store.runs(study), store.results(study)),
            }
            for name, text in texts.items():
                path = reports_dir / study / name
                write_text(path, text)
                written.append(path)
    return written
