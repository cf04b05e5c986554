# The plan (ablation/plan/) resolves and checks configs/ before the first job, and decides what runs.
#   snakemake --resources gpu=2           run everything; `--cores N` limits the CPU cores
#   snakemake -n                          list the jobs that would run
#   snakemake tables                      make the tables and all that they need; also: collect, figures, report
#   snakemake --config variant=v8         run a part of the grid; configs/config.yaml has the other keys
from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/stages.smk"
include: "workflow/rules/drawn.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    collect,
    tables,
    figures,
    report,
    gate,


rule all:
    default_target: True
    input:
        statuses,
        DATABASE,
        RENDERED,
        PAGE,
        GATE,
    message:
        "all selected stages, their tables, figures and report page"


onerror:
    render_what_is_there()
