"""Every file of another program. A reader is a module that is named as its format (`ablation.config.formats`).

    read(path, problem) -> Iterator[ImportedRun]      runs: metrics, items, prompts (`run.py`); for `import`, `collect`
    recognises(path), sheets(path, wanted), FILES     evaluations that can be paired (`sheet.py`); for `compare`

A reader raises ConfigError for what is not of its format, tells `problem` what it has to leave out, and goes on.
"""
