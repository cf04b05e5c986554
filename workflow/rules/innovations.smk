# The study innovations: configs/studies/innovations/_study.yaml says what its stages read and need.


rule innovations_task_data:
    input:
        ancient(inputs_of("innovations.task_data")),
    output:
        f"{folder_of('innovations.task_data')}/status.json",
    log:
        f"{folder_of('innovations.task_data')}/log.txt",
    benchmark:
        f"{folder_of('innovations.task_data')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.task_data", "threads")
    resources:
        **scheduler_request("innovations.task_data"),
        mem_mb=resource_of("innovations.task_data", "mem_mb"),
        runtime=resource_of("innovations.task_data", "runtime"),
        gpu=resource_of("innovations.task_data", "gpu"),
    params:
        label=label_of("innovations.task_data"),
        arguments=arguments_of("innovations.task_data"),
    message:
        "innovations.task_data  {params.label}"
    shell:
        RUN_STAGE


rule innovations_warm_start:
    input:
        ancient(inputs_of("innovations.warm_start")),
    output:
        f"{folder_of('innovations.warm_start')}/status.json",
    log:
        f"{folder_of('innovations.warm_start')}/log.txt",
    benchmark:
        f"{folder_of('innovations.warm_start')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.warm_start", "threads")
    resources:
        **scheduler_request("innovations.warm_start"),
        mem_mb=resource_of("innovations.warm_start", "mem_mb"),
        runtime=resource_of("innovations.warm_start", "runtime"),
        gpu=resource_of("innovations.warm_start", "gpu"),
    params:
        label=label_of("innovations.warm_start"),
        arguments=arguments_of("innovations.warm_start"),
    message:
        "innovations.warm_start  {params.label}"
    shell:
        RUN_STAGE


rule innovations_judge:
    input:
        ancient(inputs_of("innovations.judge")),
    output:
        f"{folder_of('innovations.judge')}/status.json",
    log:
        f"{folder_of('innovations.judge')}/log.txt",
    benchmark:
        f"{folder_of('innovations.judge')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.judge", "threads")
    resources:
        **scheduler_request("innovations.judge"),
        mem_mb=resource_of("innovations.judge", "mem_mb"),
        runtime=resource_of("innovations.judge", "runtime"),
        gpu=resource_of("innovations.judge", "gpu"),
    params:
        label=label_of("innovations.judge"),
        arguments=arguments_of("innovations.judge"),
    message:
        "innovations.judge  {params.label}"
    shell:
        RUN_STAGE


rule innovations_evaluate_warm:
    input:
        ancient(inputs_of("innovations.evaluate_warm")),
    output:
        f"{folder_of('innovations.evaluate_warm')}/status.json",
    log:
        f"{folder_of('innovations.evaluate_warm')}/log.txt",
    benchmark:
        f"{folder_of('innovations.evaluate_warm')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.evaluate_warm", "threads")
    resources:
        **scheduler_request("innovations.evaluate_warm"),
        mem_mb=resource_of("innovations.evaluate_warm", "mem_mb"),
        runtime=resource_of("innovations.evaluate_warm", "runtime"),
        gpu=resource_of("innovations.evaluate_warm", "gpu"),
    params:
        label=label_of("innovations.evaluate_warm"),
        arguments=arguments_of("innovations.evaluate_warm"),
    message:
        "innovations.evaluate_warm  {params.label}"
    shell:
        RUN_STAGE


rule innovations_reinforce:
    input:
        ancient(inputs_of("innovations.reinforce")),
    output:
        f"{folder_of('innovations.reinforce')}/status.json",
    log:
        f"{folder_of('innovations.reinforce')}/log.txt",
    benchmark:
        f"{folder_of('innovations.reinforce')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.reinforce", "threads")
    resources:
        **scheduler_request("innovations.reinforce"),
        mem_mb=resource_of("innovations.reinforce", "mem_mb"),
        runtime=resource_of("innovations.reinforce", "runtime"),
        gpu=resource_of("innovations.reinforce", "gpu"),
    params:
        label=label_of("innovations.reinforce"),
        arguments=arguments_of("innovations.reinforce"),
    message:
        "innovations.reinforce  {params.label}"
    shell:
        RUN_STAGE


rule innovations_evaluate:
    input:
        ancient(inputs_of("innovations.evaluate")),
    output:
        f"{folder_of('innovations.evaluate')}/status.json",
    log:
        f"{folder_of('innovations.evaluate')}/log.txt",
    benchmark:
        f"{folder_of('innovations.evaluate')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("innovations.evaluate", "threads")
    resources:
        **scheduler_request("innovations.evaluate"),
        mem_mb=resource_of("innovations.evaluate", "mem_mb"),
        runtime=resource_of("innovations.evaluate", "runtime"),
        gpu=resource_of("innovations.evaluate", "gpu"),
    params:
        label=label_of("innovations.evaluate"),
        arguments=arguments_of("innovations.evaluate"),
    message:
        "innovations.evaluate  {params.label}"
    shell:
        RUN_STAGE
