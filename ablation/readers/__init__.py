"""Readers of other programs' files. A reader is a module with the name of its format (`ablation.config.formats`).

    read(path, problem) -> Iterator[ImportedRun]      runs: metrics, items, prompts (`run.py`); for `import`, `collect`
    recognises(path), sheets(path, wanted)            evaluations that can be paired (`sheet.py`); for `compare`

A reader raises ConfigError for a file of another format, reports to `problem` what it has to leave out, and goes on.
"""
