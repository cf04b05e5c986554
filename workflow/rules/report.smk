# Tables, figures and the report page: drawn from the database alone.
TABLES = expand(f"{REPORTS}/{{study}}/table.html", study=STUDIES)
TABLE_FILES = expand(
    f"{REPORTS}/{{study}}/{{file}}", study=STUDIES, file=("table.md", "table.csv", "table.tex", "runs.csv")
)
METRICS = expand(f"{REPORTS}/{{study}}/metric.svg", study=STUDIES)
CURVES = expand(f"{REPORTS}/{{study}}/curves.svg", study=[name for name in STUDIES if has_curves(name)])
LINEAGES = expand(f"{REPORTS}/{{study}}/lineage.svg", study=STUDIES)
DECLARED = [
    f"{REPORTS}/{study}/{figure['name']}.svg"
    for study in STUDIES
    for figure in PLAN.studies[study].definition["figures"]
]
FIGURES = [*METRICS, *CURVES, *LINEAGES, *DECLARED]
PAGE = f"{REPORTS}/index.html"
GATE = f"{RESULTS}/gate.txt"


rule tables:
    input:
        DATABASE,
    output:
        report(
            TABLES,
            caption="../report/table.rst",
            category="Comparison",
            labels=lambda wildcards: {"study": wildcards.study, "shows": "table"},
        ),
        TABLE_FILES,
    log:
        f"{RESULTS}/logs/tables.txt",
    benchmark:
        f"{RESULTS}/logs/tables.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=0,
    message:
        "write the tables"
    shell:
        f"{TRACKER} tables {FOLDERS} > {{log}} 2>&1"


rule figures:
    input:
        DATABASE,
    output:
        report(
            METRICS,
            caption="../report/metric.rst",
            category="Comparison",
            labels={"shows": "primary metric"},
        ),
        report(
            CURVES,
            caption="../report/curves.rst",
            category="Training",
            labels={"shows": "learning curves"},
        ),
        report(
            LINEAGES,
            caption="../report/lineage.rst",
            category="Lineage",
            labels={"shows": "lineage"},
        ),
        report(
            DECLARED,
            caption="../report/figure.rst",
            category="Curves",
            labels={"shows": "figure of the study"},
        ),
    log:
        f"{RESULTS}/logs/figures.txt",
    benchmark:
        f"{RESULTS}/logs/figures.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=0,
    message:
        "draw the figures"
    shell:
        f"{TRACKER} figures {FOLDERS} > {{log}} 2>&1"


# Not in `all` until `python -m tracker report` exists: then add PAGE to the inputs of `all` and of `gate`.
rule report:
    input:
        DATABASE,
        TABLES,
        FIGURES,
    output:
        PAGE,
    log:
        f"{RESULTS}/logs/report.txt",
    benchmark:
        f"{RESULTS}/logs/report.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
        gpu=0,
    message:
        "write the report page {output}"
    shell:
        f"{TRACKER} report {FOLDERS} > {{log}} 2>&1"


# Last: a failed stage leaves the others their tables, and the invocation its exit status.
rule gate:
    input:
        DATABASE,
        TABLES,
        FIGURES,
    output:
        GATE,
    log:
        f"{RESULTS}/logs/gate.txt",
    benchmark:
        f"{RESULTS}/logs/gate.tsv"
    retries: 0
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
        gpu=0,
    message:
        "check that no stage failed"
    shell:
        f"{TRACKER} gate {FOLDERS} > {{output}} 2> >(tee {{log}} >&2)"
