# The stages' files become one database, from which tables, figures and the report page are drawn.


# The plan's digest is a parameter, so that a new variant, or a new `why`, gets into the tables without a new job.
rule collect:
    input:
        statuses,
    output:
        update(DATABASE),
    log:
        f"{RESULTS}/logs/collect.txt",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
        gpu=0,
    params:
        plan=PLAN.digest,
    message:
        "collect the results of the stages into {output}"
    shell:
        f"{TRACKER} collect --results {shlex.quote(RESULTS)} {LOGGED}"


rule tables:
    input:
        DATABASE,
    output:
        TABLES,
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
        FIGURES,
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


rule report:
    input:
        DATABASE,
        RENDERED,
    output:
        update(PAGE),
        update(FINDINGS),
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
        f"write the report page {PAGE}"
    shell:
        f"{TRACKER} report {FOLDERS} {LOGGED}"


# The gate is the last rule, so that a failed stage makes snakemake fail but does not cost the others their tables.
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
        f"{TRACKER} status --failed --results {shlex.quote(RESULTS)} > {{output:q}} 2> >(tee {{log:q}} >&2)"
