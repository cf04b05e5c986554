# One rule for every stage that the plan knows: `assets`, then `<study>_<stage>`, as configs/studies/*/_study.yaml declare them.
# In a loop Snakemake gives all rules the last shell string, so it is one constant; what differs between stages comes from
# functions that are made with the stage's id (a lambda written here would see the last one).


for id in PLAN.stage_ids():

    rule:
        name:
            id.replace(".", "_")
        input:
            ancient(inputs_of(id)),
        output:
            f"{folder_of(id)}/status.json",
        log:
            f"{folder_of(id)}/log.txt",
        group:
            group_of(id)
        conda:
            ENVIRONMENT
        threads: resource_of(id, "threads")
        resources:
            **scheduler_request(id),
            **nodes_of(id),
            mem_mb=resource_of(id, "mem_mb"),
            runtime=resource_of(id, "runtime"),
            gpu=resource_of(id, "gpu"),
        params:
            label=label_of(id),
            arguments=arguments_of(id),
            start=start_of(id),
        message:
            f"{id}  {{params.label}}"
        shell:
            RUN_STAGE
