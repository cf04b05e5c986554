# The study demonstrations: configs/studies/demonstrations/_study.yaml says what its stages read and need.


rule demonstrations_learner:
    input:
        ancient(inputs_of("demonstrations.learner")),
    output:
        f"{folder_of('demonstrations.learner')}/status.json",
    log:
        f"{folder_of('demonstrations.learner')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.learner')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.learner", "threads")
    resources:
        **scheduler_request("demonstrations.learner"),
        mem_mb=resource_of("demonstrations.learner", "mem_mb"),
        runtime=resource_of("demonstrations.learner", "runtime"),
        gpu=resource_of("demonstrations.learner", "gpu"),
    params:
        label=label_of("demonstrations.learner"),
        arguments=arguments_of("demonstrations.learner"),
    message:
        "demonstrations.learner  {params.label}"
    shell:
        RUN_STAGE


rule demonstrations_embed:
    input:
        ancient(inputs_of("demonstrations.embed")),
    output:
        f"{folder_of('demonstrations.embed')}/status.json",
    log:
        f"{folder_of('demonstrations.embed')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.embed')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.embed", "threads")
    resources:
        **scheduler_request("demonstrations.embed"),
        mem_mb=resource_of("demonstrations.embed", "mem_mb"),
        runtime=resource_of("demonstrations.embed", "runtime"),
        gpu=resource_of("demonstrations.embed", "gpu"),
    params:
        label=label_of("demonstrations.embed"),
        arguments=arguments_of("demonstrations.embed"),
    message:
        "demonstrations.embed  {params.label}"
    shell:
        RUN_STAGE


rule demonstrations_candidates:
    input:
        ancient(inputs_of("demonstrations.candidates")),
    output:
        f"{folder_of('demonstrations.candidates')}/status.json",
    log:
        f"{folder_of('demonstrations.candidates')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.candidates')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.candidates", "threads")
    resources:
        **scheduler_request("demonstrations.candidates"),
        mem_mb=resource_of("demonstrations.candidates", "mem_mb"),
        runtime=resource_of("demonstrations.candidates", "runtime"),
        gpu=resource_of("demonstrations.candidates", "gpu"),
    params:
        label=label_of("demonstrations.candidates"),
        arguments=arguments_of("demonstrations.candidates"),
    message:
        "demonstrations.candidates  {params.label}"
    shell:
        RUN_STAGE


rule demonstrations_rce:
    input:
        ancient(inputs_of("demonstrations.rce")),
    output:
        f"{folder_of('demonstrations.rce')}/status.json",
    log:
        f"{folder_of('demonstrations.rce')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.rce')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.rce", "threads")
    resources:
        **scheduler_request("demonstrations.rce"),
        mem_mb=resource_of("demonstrations.rce", "mem_mb"),
        runtime=resource_of("demonstrations.rce", "runtime"),
        gpu=resource_of("demonstrations.rce", "gpu"),
    params:
        label=label_of("demonstrations.rce"),
        arguments=arguments_of("demonstrations.rce"),
    message:
        "demonstrations.rce  {params.label}"
    shell:
        RUN_STAGE


rule demonstrations_grpo:
    input:
        ancient(inputs_of("demonstrations.grpo")),
    output:
        f"{folder_of('demonstrations.grpo')}/status.json",
    log:
        f"{folder_of('demonstrations.grpo')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.grpo')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.grpo", "threads")
    resources:
        **scheduler_request("demonstrations.grpo"),
        mem_mb=resource_of("demonstrations.grpo", "mem_mb"),
        runtime=resource_of("demonstrations.grpo", "runtime"),
        gpu=resource_of("demonstrations.grpo", "gpu"),
    params:
        label=label_of("demonstrations.grpo"),
        arguments=arguments_of("demonstrations.grpo"),
    message:
        "demonstrations.grpo  {params.label}"
    shell:
        RUN_STAGE


rule demonstrations_evaluate:
    input:
        ancient(inputs_of("demonstrations.evaluate")),
    output:
        f"{folder_of('demonstrations.evaluate')}/status.json",
    log:
        f"{folder_of('demonstrations.evaluate')}/log.txt",
    benchmark:
        f"{folder_of('demonstrations.evaluate')}/benchmark.tsv"
    conda:
        "../../environment.yml"
    threads: resource_of("demonstrations.evaluate", "threads")
    resources:
        **scheduler_request("demonstrations.evaluate"),
        mem_mb=resource_of("demonstrations.evaluate", "mem_mb"),
        runtime=resource_of("demonstrations.evaluate", "runtime"),
        gpu=resource_of("demonstrations.evaluate", "gpu"),
    params:
        label=label_of("demonstrations.evaluate"),
        arguments=arguments_of("demonstrations.evaluate"),
    message:
        "demonstrations.evaluate  {params.label}"
    shell:
        RUN_STAGE
