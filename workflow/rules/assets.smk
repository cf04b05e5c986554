# Models and data, each fetched once for all studies.


rule assets:
    input:
        ancient(inputs_of("assets")),
    output:
        f"{folder_of('assets')}/status.json",
    log:
        f"{folder_of('assets')}/log.txt",
    benchmark:
        f"{folder_of('assets')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("assets", "threads")
    resources:
        **scheduler_request("assets"),
        mem_mb=resource_of("assets", "mem_mb"),
        runtime=resource_of("assets", "runtime"),
        gpu=resource_of("assets", "gpu"),
    params:
        label=label_of("assets"),
        arguments=arguments_of("assets"),
    message:
        "assets  {params.label}"
    shell:
        RUN_STAGE
