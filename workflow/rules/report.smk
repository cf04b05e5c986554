# Tables, figures and the report page: drawn from the database alone.
TABLES = {study: f"{REPORTS}/{study}/table.html" for study in STUDIES}
TABLE_FILES = expand(
    f"{REPORTS}/{{study}}/{{file}}", study=STUDIES, file=("table.md", "table.csv", "table.tex", "runs.csv")
)
METRICS = {study: f"{REPORTS}/{study}/metric.svg" for study in STUDIES}
CURVES = {study: f"{REPORTS}/{study}/curves.svg" for study in STUDIES if PLAN.studies[study].written.curves}
LINEAGES = {study: f"{REPORTS}/{study}/lineage.svg" for study in STUDIES}
DECLARED = {
    (study, figure.title): f"{REPORTS}/{study}/{figure.name}.svg"
    for study in STUDIES
    for figure in PLAN.studies[study].written.figures
}
FIGURES = [*METRICS.values(), *CURVES.values(), *LINEAGES.values(), *DECLARED.values()]
RENDERED = [*TABLES.values(), *TABLE_FILES, *FIGURES]
PAGE = f"{REPORTS}/index.html"
CERTIFICATE = f"{RESULTS}/certificate.json"
GATE = f"{RESULTS}/gate.txt"


rule tables:
    input:
        DATABASE,
    output:
        [
            kept_report(
                file,
                caption="../report/table.rst",
                category="Comparison",
                labels={"study": study, "shows": "comparison table"},
            )
            for study, file in TABLES.items()
        ],
        [update(file) for file in TABLE_FILES],
    log:
        f"{RESULTS}/logs/tables.txt",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=0,
    message:
        "write the tables"
    shell:
        f"{TRACKER} tables {FOLDERS} {LOGGED}"


rule figures:
    input:
        DATABASE,
    output:
        [
            kept_report(
                file,
                caption="../report/metric.rst",
                category="Comparison",
                labels={"study": study, "shows": "primary metric"},
            )
            for study, file in METRICS.items()
        ],
        [
            kept_report(
                file,
                caption="../report/curves.rst",
                category="Training",
                labels={"study": study, "shows": "learning curves"},
            )
            for study, file in CURVES.items()
        ],
        [
            kept_report(
                file,
                caption="../report/lineage.rst",
                category="Lineage",
                labels={"study": study, "shows": "lineage"},
            )
            for study, file in LINEAGES.items()
        ],
        [
            kept_report(
                file,
                caption="../report/figure.rst",
                category="Training",
                labels={"study": study, "shows": title},
            )
            for (study, title), file in DECLARED.items()
        ],
    log:
        f"{RESULTS}/logs/figures.txt",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=0,
    message:
        "draw the figures"
    shell:
        f"{TRACKER} figures {FOLDERS} {LOGGED}"


# How often the verdicts' words are wrong. Studies that are as they were keep what was found; the command knows.
rule certify:
    input:
        DATABASE,
    output:
        update(CERTIFICATE),
    log:
        f"{RESULTS}/logs/certify.txt",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
        gpu=0,
    message:
        "certify the verdicts"
    shell:
        f"{TRACKER} certify --results {shlex.quote(RESULTS)} {LOGGED}"


rule report:
    input:
        DATABASE,
        RENDERED,
        CERTIFICATE,
    output:
        update(PAGE),
    log:
        f"{RESULTS}/logs/report.txt",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
        gpu=0,
    message:
        "write the report page {output}"
    shell:
        f"{TRACKER} report {FOLDERS} {LOGGED}"


# Last: a failed stage leaves the others their tables, and the invocation its exit status.
rule gate:
    input:
        DATABASE,
        RENDERED,
        PAGE,
    output:
        GATE,
    log:
        f"{RESULTS}/logs/gate.txt",
    retries: 0
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
        gpu=0,
    message:
        "check that no stage failed"
    shell:
        f"{TRACKER} gate --results {shlex.quote(RESULTS)} > {{output:q}} 2> >(tee {{log:q}} >&2)"
