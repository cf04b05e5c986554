# The files of the stages become one database.
DATABASE = f"{RESULTS}/tracker.duckdb"


# update: Snakemake deletes other outputs before it runs a rule again, and a collect that fails must leave the old one.
# The plan's digest: a new variant, or a new `why`, is in the tables also when no job had to run for it.
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
        "collect the results of the stages in {output}"
    shell:
        f"{TRACKER} collect {FOLDERS} {LOGGED}"
