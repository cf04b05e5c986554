"""Readers of other programs' files: for each format in `ablation.config.formats`, a module of the same name.

    read(path, problem) -> Iterator[ImportedRun]      runs (`run.py`), for `import` and the key `collect`
    recognises(path), sheets(path, wanted)            evaluations that can be paired (`sheet.py`), for `compare`

A reader raises ConfigError for a file of another format. It reports what it leaves out to `problem`, and goes on.
"""
