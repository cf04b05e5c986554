# What runs is decided by the plan (ablation/plan/), which resolves and checks configs/ before the first job.
#   snakemake --resources gpu=2           everything; --cores would be a number, or all
#   snakemake -n                          what would run
#   snakemake tables                      the tables and what they need; also: collect, figures, report
#   snakemake --config variant=v8         a part of the grid; see configs/config.yaml for the other keys
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
