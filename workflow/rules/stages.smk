# One rule for every stage that the plan knows: `assets`, then `<study>_<stage>`, as configs/studies/*/_study.yaml declare them.
# In a loop Snakemake gives all rules the last shell string, so it is one constant; what differs between stages comes from
# functions that are made with the stage's id (a lambda written here would see the last one).


for id in PLAN.stage_ids():

    rule:
        name:
            id.replace(".", "_")
        input:
            ancient(JOBS.inputs_of(id)),
        output:
            f"{JOBS.folder_of(id)}/status.json",
        log:
            f"{JOBS.folder_of(id)}/log.txt",
        priority: JOBS.priority_of(id)
        group:
            JOBS.group_of(id)
        conda:
            ENVIRONMENT
        threads: JOBS.resource_of(id, "threads")
        resources:
            **JOBS.scheduler_request(id),
            **JOBS.nodes_of(id),
            mem_mb=JOBS.resource_of(id, "mem_mb"),
            runtime=JOBS.resource_of(id, "runtime"),
            gpu=JOBS.resource_of(id, "gpu"),
        params:
            label=JOBS.label_of(id),
            arguments=JOBS.arguments_of(id),
            start=JOBS.start_of(id),
        message:
            f"{id}  {{params.label}}"
        shell:
            RUN_STAGE
