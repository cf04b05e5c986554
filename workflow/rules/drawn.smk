# Files that are made from the stages' results: a database, tables, figures and the page.
DATABASE = f"{RESULTS}/tracker.duckdb"
PAGE, FINDINGS = f"{REPORTS}/index.html", f"{REPORTS}/findings.txt"
GATE = f"{RESULTS}/gate.txt"


# `update` keeps an old file until the new one replaces it; Snakemake deletes any other output before it reruns a rule.
def kept_report(study: str, file: str, caption: str, category: str, shows: str) -> str:
    """Mark a file of a study for `snakemake --report`; its old version stays until the new one replaces it."""
    labels = {"study": study, "shows": shows}
    file, caption = f"{REPORTS}/{study}/{file}", f"../report/{caption}.rst"
    return update(report(file, caption=caption, category=category, labels=labels))


TABLES = [kept_report(study, "table.html", "table", "Comparison", "comparison table") for study in STUDIES]
TABLE_FILES = expand(
    f"{REPORTS}/{{study}}/{{file}}", study=STUDIES, file=("table.md", "table.csv", "table.tex", "runs.csv")
)
FIGURES = [
    *(kept_report(study, "metric.svg", "metric", "Comparison", "primary metric") for study in STUDIES),
    *(
        kept_report(study, "curves.svg", "curves", "Training", "learning curves")
        for study in STUDIES
        if PLAN.studies[study].written.curves
    ),
    *(kept_report(study, "variant-tree.svg", "variant-tree", "Variants", "variant tree") for study in STUDIES),
    *(
        kept_report(study, f"{figure.name}.svg", "figure", "Training", figure.title)
        for study in STUDIES
        for figure in PLAN.studies[study].written.figures
    ),
]
RENDERED = [str(file) for file in (*TABLES, *TABLE_FILES, *FIGURES)]
