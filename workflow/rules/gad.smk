# The study gad: configs/studies/gad/_study.yaml says what its stages read and need.


rule gad_data:
    input:
        ancient(inputs_of("gad.data")),
    output:
        f"{folder_of('gad.data')}/status.json",
    log:
        f"{folder_of('gad.data')}/log.txt",
    benchmark:
        f"{folder_of('gad.data')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.data", "threads")
    resources:
        **scheduler_request("gad.data"),
        mem_mb=resource_of("gad.data", "mem_mb"),
        runtime=resource_of("gad.data", "runtime"),
        gpu=resource_of("gad.data", "gpu"),
    params:
        label=label_of("gad.data"),
        arguments=arguments_of("gad.data"),
    message:
        "gad.data  {params.label}"
    shell:
        RUN_STAGE


rule gad_base:
    input:
        ancient(inputs_of("gad.base")),
    output:
        f"{folder_of('gad.base')}/status.json",
    log:
        f"{folder_of('gad.base')}/log.txt",
    benchmark:
        f"{folder_of('gad.base')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.base", "threads")
    resources:
        **scheduler_request("gad.base"),
        mem_mb=resource_of("gad.base", "mem_mb"),
        runtime=resource_of("gad.base", "runtime"),
        gpu=resource_of("gad.base", "gpu"),
    params:
        label=label_of("gad.base"),
        arguments=arguments_of("gad.base"),
    message:
        "gad.base  {params.label}"
    shell:
        RUN_STAGE


rule gad_seqkd:
    input:
        ancient(inputs_of("gad.seqkd")),
    output:
        f"{folder_of('gad.seqkd')}/status.json",
    log:
        f"{folder_of('gad.seqkd')}/log.txt",
    benchmark:
        f"{folder_of('gad.seqkd')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.seqkd", "threads")
    resources:
        **scheduler_request("gad.seqkd"),
        mem_mb=resource_of("gad.seqkd", "mem_mb"),
        runtime=resource_of("gad.seqkd", "runtime"),
        gpu=resource_of("gad.seqkd", "gpu"),
    params:
        label=label_of("gad.seqkd"),
        arguments=arguments_of("gad.seqkd"),
    message:
        "gad.seqkd  {params.label}"
    shell:
        RUN_STAGE


rule gad_evaluate_start:
    input:
        ancient(inputs_of("gad.evaluate_start")),
    output:
        f"{folder_of('gad.evaluate_start')}/status.json",
    log:
        f"{folder_of('gad.evaluate_start')}/log.txt",
    benchmark:
        f"{folder_of('gad.evaluate_start')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.evaluate_start", "threads")
    resources:
        **scheduler_request("gad.evaluate_start"),
        mem_mb=resource_of("gad.evaluate_start", "mem_mb"),
        runtime=resource_of("gad.evaluate_start", "runtime"),
        gpu=resource_of("gad.evaluate_start", "gpu"),
    params:
        label=label_of("gad.evaluate_start"),
        arguments=arguments_of("gad.evaluate_start"),
    message:
        "gad.evaluate_start  {params.label}"
    shell:
        RUN_STAGE


rule gad_warmup:
    input:
        ancient(inputs_of("gad.warmup")),
    output:
        f"{folder_of('gad.warmup')}/status.json",
    log:
        f"{folder_of('gad.warmup')}/log.txt",
    benchmark:
        f"{folder_of('gad.warmup')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.warmup", "threads")
    resources:
        **scheduler_request("gad.warmup"),
        mem_mb=resource_of("gad.warmup", "mem_mb"),
        runtime=resource_of("gad.warmup", "runtime"),
        gpu=resource_of("gad.warmup", "gpu"),
    params:
        label=label_of("gad.warmup"),
        arguments=arguments_of("gad.warmup"),
    message:
        "gad.warmup  {params.label}"
    shell:
        RUN_STAGE


rule gad_gad:
    input:
        ancient(inputs_of("gad.gad")),
    output:
        f"{folder_of('gad.gad')}/status.json",
    log:
        f"{folder_of('gad.gad')}/log.txt",
    benchmark:
        f"{folder_of('gad.gad')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.gad", "threads")
    resources:
        **scheduler_request("gad.gad"),
        mem_mb=resource_of("gad.gad", "mem_mb"),
        runtime=resource_of("gad.gad", "runtime"),
        gpu=resource_of("gad.gad", "gpu"),
    params:
        label=label_of("gad.gad"),
        arguments=arguments_of("gad.gad"),
    message:
        "gad.gad  {params.label}"
    shell:
        RUN_STAGE


rule gad_evaluate:
    input:
        ancient(inputs_of("gad.evaluate")),
    output:
        f"{folder_of('gad.evaluate')}/status.json",
    log:
        f"{folder_of('gad.evaluate')}/log.txt",
    benchmark:
        f"{folder_of('gad.evaluate')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gad.evaluate", "threads")
    resources:
        **scheduler_request("gad.evaluate"),
        mem_mb=resource_of("gad.evaluate", "mem_mb"),
        runtime=resource_of("gad.evaluate", "runtime"),
        gpu=resource_of("gad.evaluate", "gpu"),
    params:
        label=label_of("gad.evaluate"),
        arguments=arguments_of("gad.evaluate"),
    message:
        "gad.evaluate  {params.label}"
    shell:
        RUN_STAGE
