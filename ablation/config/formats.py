"""The file formats of other programs, for `import`, `compare` and the key `collect` of a command.

To add a format, add an entry here, a module of its name in `ablation.readers`, and a row in docs/reference/formats.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A file format of another program.

    Attributes:
        uses: what reads it: `import`, `compare`, or `collect` (the key of a stage that is a command).
        title: the format in a few words, for help texts and errors.
        patterns: shell patterns for the names of its files in a folder.
    """

    uses: tuple[str, ...]
    title: str
    patterns: tuple[str, ...] = ()


FORMATS = {
    "items": Format(("collect",), "evaluation items of any program"),
    "metrics": Format(("collect",), "metrics of any program"),
    "lm_eval": Format(("compare", "collect"), "lm-eval's samples_*.jsonl", ("samples_*.jsonl",)),
    "inspect_ai": Format(("compare",), "Inspect's .eval or .json", ("*.eval", "*.json")),
    "lmms_eval": Format(("compare",), "lmms-eval's samples", ("*_samples_*.jsonl",)),
    "every_eval_ever": Format(
        ("compare",), "Every Eval Ever's samples", ("*_samples.jsonl", "????????-????-????-????-????????????.jsonl")
    ),
    "swe_bench": Format(("compare",), "SWE-bench's reports", ("*.json",)),
    "tau2": Format(("compare",), "tau2-bench's results", ("*.json",)),
    "harbor": Format(("compare",), "jobs of Harbor and Terminal-Bench", ("result.json", "results.json")),
    "promptfoo": Format(("compare",), "promptfoo's output.json", ("*.json",)),
    "openai_evals": Format(("compare",), "OpenAI evals' logs", ("[0-9]" * 12 + "????????_*.jsonl",)),
    "objects": Format(("compare",), "a folder with a JSON object for each item"),
    "table": Format(
        ("compare", "import"),
        "a table (CSV, TSV, JSON lines, JSON array, Parquet) with the columns item and value",
        ("*.csv", "*.tsv", "*.jsonl", "*.parquet"),
    ),
    "trainer_state": Format(("import", "collect"), "Hugging Face Trainer, TRL", ("trainer_state.json",)),
    "verl": Format(("import", "collect"), "verl's file logger", ("*.jsonl",)),
    "tensorboard": Format(("import", "collect"), "event files", ("*tfevents*",)),
    "mlflow": Format(("import", "collect"), "mlflow.db, mlruns/", ("*.db", "meta.yaml")),
    "wandb": Format(("import", "collect"), "offline runs, exported CSV", ("*.wandb", "*.csv")),
    "trackio": Format(("import", "collect"), "SQLite files", ("*.db",)),
    "evaluation": Format(("import",), "the evaluations that `compare` reads"),
}


def formats_of(use: str) -> dict[str, Format]:
    """Return {name: format} of the formats that can be used for `import`, `compare` or `collect`."""
    return {name: each for name, each in FORMATS.items() if use in each.uses}
