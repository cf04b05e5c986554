# The study gspo: configs/studies/gspo/_study.yaml says what its stages read and need.


rule gspo_task_data:
    input:
        ancient(inputs_of("gspo.task_data")),
    output:
        f"{folder_of('gspo.task_data')}/status.json",
    log:
        f"{folder_of('gspo.task_data')}/log.txt",
    benchmark:
        f"{folder_of('gspo.task_data')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.task_data", "threads")
    resources:
        **scheduler_request("gspo.task_data"),
        mem_mb=resource_of("gspo.task_data", "mem_mb"),
        runtime=resource_of("gspo.task_data", "runtime"),
        gpu=resource_of("gspo.task_data", "gpu"),
    params:
        label=label_of("gspo.task_data"),
        arguments=arguments_of("gspo.task_data"),
    message:
        "gspo.task_data  {params.label}"
    shell:
        RUN_STAGE


rule gspo_warm_start:
    input:
        ancient(inputs_of("gspo.warm_start")),
    output:
        f"{folder_of('gspo.warm_start')}/status.json",
    log:
        f"{folder_of('gspo.warm_start')}/log.txt",
    benchmark:
        f"{folder_of('gspo.warm_start')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.warm_start", "threads")
    resources:
        **scheduler_request("gspo.warm_start"),
        mem_mb=resource_of("gspo.warm_start", "mem_mb"),
        runtime=resource_of("gspo.warm_start", "runtime"),
        gpu=resource_of("gspo.warm_start", "gpu"),
    params:
        label=label_of("gspo.warm_start"),
        arguments=arguments_of("gspo.warm_start"),
    message:
        "gspo.warm_start  {params.label}"
    shell:
        RUN_STAGE


rule gspo_judge:
    input:
        ancient(inputs_of("gspo.judge")),
    output:
        f"{folder_of('gspo.judge')}/status.json",
    log:
        f"{folder_of('gspo.judge')}/log.txt",
    benchmark:
        f"{folder_of('gspo.judge')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.judge", "threads")
    resources:
        **scheduler_request("gspo.judge"),
        mem_mb=resource_of("gspo.judge", "mem_mb"),
        runtime=resource_of("gspo.judge", "runtime"),
        gpu=resource_of("gspo.judge", "gpu"),
    params:
        label=label_of("gspo.judge"),
        arguments=arguments_of("gspo.judge"),
    message:
        "gspo.judge  {params.label}"
    shell:
        RUN_STAGE


rule gspo_evaluate_warm:
    input:
        ancient(inputs_of("gspo.evaluate_warm")),
    output:
        f"{folder_of('gspo.evaluate_warm')}/status.json",
    log:
        f"{folder_of('gspo.evaluate_warm')}/log.txt",
    benchmark:
        f"{folder_of('gspo.evaluate_warm')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.evaluate_warm", "threads")
    resources:
        **scheduler_request("gspo.evaluate_warm"),
        mem_mb=resource_of("gspo.evaluate_warm", "mem_mb"),
        runtime=resource_of("gspo.evaluate_warm", "runtime"),
        gpu=resource_of("gspo.evaluate_warm", "gpu"),
    params:
        label=label_of("gspo.evaluate_warm"),
        arguments=arguments_of("gspo.evaluate_warm"),
    message:
        "gspo.evaluate_warm  {params.label}"
    shell:
        RUN_STAGE


rule gspo_reinforce:
    input:
        ancient(inputs_of("gspo.reinforce")),
    output:
        f"{folder_of('gspo.reinforce')}/status.json",
    log:
        f"{folder_of('gspo.reinforce')}/log.txt",
    benchmark:
        f"{folder_of('gspo.reinforce')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.reinforce", "threads")
    resources:
        **scheduler_request("gspo.reinforce"),
        mem_mb=resource_of("gspo.reinforce", "mem_mb"),
        runtime=resource_of("gspo.reinforce", "runtime"),
        gpu=resource_of("gspo.reinforce", "gpu"),
    params:
        label=label_of("gspo.reinforce"),
        arguments=arguments_of("gspo.reinforce"),
    message:
        "gspo.reinforce  {params.label}"
    shell:
        RUN_STAGE


rule gspo_evaluate:
    input:
        ancient(inputs_of("gspo.evaluate")),
    output:
        f"{folder_of('gspo.evaluate')}/status.json",
    log:
        f"{folder_of('gspo.evaluate')}/log.txt",
    benchmark:
        f"{folder_of('gspo.evaluate')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("gspo.evaluate", "threads")
    resources:
        **scheduler_request("gspo.evaluate"),
        mem_mb=resource_of("gspo.evaluate", "mem_mb"),
        runtime=resource_of("gspo.evaluate", "runtime"),
        gpu=resource_of("gspo.evaluate", "gpu"),
    params:
        label=label_of("gspo.evaluate"),
        arguments=arguments_of("gspo.evaluate"),
    message:
        "gspo.evaluate  {params.label}"
    shell:
        RUN_STAGE
