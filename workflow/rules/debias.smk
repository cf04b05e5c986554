# The study debias: configs/studies/debias/_study.yaml says what its stages read and need.


rule debias_prepare:
    input:
        ancient(inputs_of("debias.prepare")),
    output:
        f"{folder_of('debias.prepare')}/status.json",
    log:
        f"{folder_of('debias.prepare')}/log.txt",
    benchmark:
        f"{folder_of('debias.prepare')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("debias.prepare", "threads")
    resources:
        **scheduler_request("debias.prepare"),
        mem_mb=resource_of("debias.prepare", "mem_mb"),
        runtime=resource_of("debias.prepare", "runtime"),
        gpu=resource_of("debias.prepare", "gpu"),
    params:
        label=label_of("debias.prepare"),
        arguments=arguments_of("debias.prepare"),
    message:
        "debias.prepare  {params.label}"
    shell:
        RUN_STAGE


rule debias_train:
    input:
        ancient(inputs_of("debias.train")),
    output:
        f"{folder_of('debias.train')}/status.json",
    log:
        f"{folder_of('debias.train')}/log.txt",
    benchmark:
        f"{folder_of('debias.train')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("debias.train", "threads")
    resources:
        **scheduler_request("debias.train"),
        mem_mb=resource_of("debias.train", "mem_mb"),
        runtime=resource_of("debias.train", "runtime"),
        gpu=resource_of("debias.train", "gpu"),
    params:
        label=label_of("debias.train"),
        arguments=arguments_of("debias.train"),
    message:
        "debias.train  {params.label}"
    shell:
        RUN_STAGE


rule debias_evaluate:
    input:
        ancient(inputs_of("debias.evaluate")),
    output:
        f"{folder_of('debias.evaluate')}/status.json",
    log:
        f"{folder_of('debias.evaluate')}/log.txt",
    benchmark:
        f"{folder_of('debias.evaluate')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("debias.evaluate", "threads")
    resources:
        **scheduler_request("debias.evaluate"),
        mem_mb=resource_of("debias.evaluate", "mem_mb"),
        runtime=resource_of("debias.evaluate", "runtime"),
        gpu=resource_of("debias.evaluate", "gpu"),
    params:
        label=label_of("debias.evaluate"),
        arguments=arguments_of("debias.evaluate"),
    message:
        "debias.evaluate  {params.label}"
    shell:
        RUN_STAGE
