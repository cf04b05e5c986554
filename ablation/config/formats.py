"""The formats of other programs: what `import`, `compare` and a command's `collect` may name.

A format is an entry here and a module of its name in `ablation.readers`, which is imported on demand. Help, errors and
docs/reference/formats.md are generated from the entries.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """The description of a format.

    Attributes:
        uses: the commands that read it: `import`, `compare`, `collect` (of a stage that is a command).
        title: in a few words.
        files: where they are found, in Markdown.
        content: what is read of them, in Markdown.
        patterns: of the names by which files are found in a folder.
        left_out: what is not read, in Markdown.
        tried: the versions of the writer whose files are read in tests.
    """

    uses: tuple[str, ...]
    title: str
    files: str
    content: str
    patterns: tuple[str, ...] = ()
    left_out: str = ""
    tried: str = ""


FORMATS = {
    "items": Format(
        ("collect",),
        "evaluation items of any program",
        "`items.csv`, `.jsonl`, `.parquet`",
        "`item,value` and optionally `subset` (`all`), `protocol` (`test`), `name` (`value`), `cluster`; or a column "
        "of numbers for each name",
        left_out="columns without a number, texts, class and row numbers",
    ),
    "metrics": Format(
        ("collect",),
        "metrics of any program",
        "`metrics.csv`, `.jsonl`, `.parquet`",
        "`step,name,value`, or `step` and a column for each metric; without steps, final values",
        left_out="a log's torn lines, with a line each",
    ),
    "lm_eval": Format(
        ("compare", "collect"),
        "lm-eval's samples_*.jsonl",
        "`samples_<task>_<date>.jsonl`, written with `--log_samples` by lm-evaluation-harness 0.4.3 or later; "
        "`results_<date>.json` in the same folder is used if it exists",
        "an item is a document, by `doc_hash`; the task is the subset. `collect` takes the newest file of each task",
        patterns=("samples_*.jsonl",),
        left_out="metrics of all items at once; older files of a task in `collect`",
        tried="lm-eval 0.4.13; rows as of 0.4.3",
    ),
    "inspect_ai": Format(
        ("compare",),
        "Inspect's .eval or .json",
        "`.eval`, `.json`",
        "an item is a sample, by its id; epochs are repeats; `--metric` names a scorer, or `scorer/key`",
        patterns=("*.eval", "*.json"),
        left_out="a log that a retry replaced; logs that did not end, beside others in `import` and `--latest`; "
        "samples without a score only with `--errors`; other JSON",
        tried="inspect_ai 0.3.285",
    ),
    "lmms_eval": Format(
        ("compare",),
        "lmms-eval's samples",
        "`<date>_samples_<task>.jsonl`, written with `--log_samples`; `<date>_results.json` in the same folder is used "
        "if it exists",
        "an item is a document, by `doc_id`; the task is the subset; a metric is a number, or a map with a `score`",
        patterns=("*_samples_*.jsonl",),
        left_out="numbers that are not of an item",
        tried="none, but files in its form",
    ),
    "every_eval_ever": Format(
        ("compare",),
        "Every Eval Ever's samples",
        "`<id>.jsonl` or `<id>_samples.jsonl` of its schema for instances, 0.2; `<id>.json` is used if it exists",
        "an item is a sample, by `sample_id`; the evaluation is the subset; the metric is `score` or `is_correct`",
        patterns=("*_samples.jsonl", "????????-????-????-????-????????????.jsonl"),
        left_out="other scores of an instance",
        tried="none, but files in its form",
    ),
    "swe_bench": Format(
        ("compare",),
        "SWE-bench's reports",
        "`<model>.<run>.json` of the harness; a folder of `<instance>/report.json`; SWE-bench Pro's "
        "`eval_results.json`, or any JSON object of item and true, false or a number",
        "an item is an instance, 1 if resolved, 0 if not or without a patch; a repository's instances are a cluster; "
        "`error_ids`, `infra_failure_ids`, `infra_errors.json` and instances without a report have an error: "
        "[Errors](../how-to/agents.md#errors)",
        patterns=("*.json",),
        left_out="instances that were not submitted, or whose empty patch left no folder; the tests of an instance",
        tried="SWE-bench 5.0.2; by hand, SWE-bench Pro's nine published results of May 2026",
    ),
    "tau2": Format(
        ("compare",),
        "tau2-bench's results",
        "`data/simulations/<run>.json`, or `results.json` beside `simulations/`",
        "an item is a task, the subset its domain; trials are samples (`--pass-at`, `--all-at`); simulations that "
        "ended by `infrastructure_error`, or have no reward, have an error",
        patterns=("*.json",),
        left_out="partial rewards, messages, costs",
        tried="by hand: the data model of tau2 1.0.1 (August 2026), its published test run",
    ),
    "harbor": Format(
        ("compare",),
        "jobs of Harbor and Terminal-Bench",
        "a job's folder with `<trial>/result.json`, or its `result.json` with all trials; of Terminal-Bench 1 "
        "`<task>/<trial>/results.json`, or the run's `results.json`",
        "an item is a task; attempts are samples; the metric is `reward`, or another of the verifier's; a trial "
        "without a reward or a result, or with `reward_valid: false`, has an error",
        patterns=("result.json", "results.json"),
        left_out="trajectories, tokens, times",
        tried="by hand: models of Harbor 0.26.0; eleven submissions to Terminal-Bench 1 (terminal-bench-core 0.1.1)",
    ),
    "promptfoo": Format(
        ("compare",),
        "promptfoo's output.json",
        "`promptfoo eval -o output.json`, results of version 3",
        "an item is a test, by its description or variables; repeats are samples; `--by provider`, `--by prompt` or "
        "`--by provider,prompt` says what the sides are; the metric is `success`, `score` or a named score; results "
        "with `failureReason` 2 have an error",
        patterns=("*.json",),
        left_out="its CSV, JSON lines and HTML; costs, tokens",
        tried="by hand: promptfoo 0.121.20",
    ),
    "openai_evals": Format(
        ("compare",),
        "OpenAI evals' logs",
        "`<run>.jsonl` that `oaieval` records",
        "an item is a sample, by `sample_id`; the metric is `correct` of `match`, or a number of `metrics`; a sample "
        "with an event `error` has an error",
        patterns=("[0-9]" * 12 + "????????_*.jsonl",),
        left_out="other events",
        tried="by hand: the recorder of evals 3.0.1",
    ),
    "table": Format(
        ("compare", "import"),
        "a table (CSV, TSV, JSON lines, JSON array, Parquet) with the columns item and value",
        "`.csv`, `.tsv`, `.jsonl`, `.json`, `.parquet`, named by file or pattern",
        "`item`, `value` and optionally `seed`, `subset`, `cluster`, `sample`, `prompt`, `target`, `answer`, `text`; "
        "the item may be called `id`, `question_id`, `task_id`, ..., the value `score`, `correct`, ..., the "
        "sample `epoch`, `trial`, `attempt`, ...; UTF-16, `sep=;`, decimal commas and `75.8%` are read. So is what "
        "LangSmith's `results.to_pandas()` holds, by `example_id` and `feedback.<key>`. `import` "
        "reads tables of runs: [A table of runs](../how-to/import.md#a-table-of-runs)",
        patterns=("*.csv", "*.tsv", "*.jsonl", "*.parquet"),
        left_out="further columns; all tables in a folder, unless named. Braintrust, Langfuse and Weave do not "
        "document the columns that they export: name them with `--item` and `--metric`",
        tried="LangSmith's SDK 0.15.1",
    ),
    "trainer_state": Format(
        ("import", "collect"),
        "Hugging Face Trainer, TRL",
        "an output folder, or a folder of them",
        "`trainer_state.json` of the HF Trainer and TRL, of checkpoints the last one; settings from "
        "`training_args.json`, `args.json` or YAML in the same folder, else from `training_args.bin` (plain "
        "values only: nothing of the pickle is run); TRL's `completions/*.parquet` as items",
        patterns=("trainer_state.json",),
        left_out="what is not a number; `eval_results.json` and `all_results.json`",
        tried="transformers 5.23.0, TRL 1.16.0",
    ),
    "verl": Format(
        ("import", "collect"),
        "its file logger",
        "`<experiment>.jsonl`, or a folder of them",
        "the `file` logger; `validation_data_dir` (a folder with `val` in its name) as items; settings from "
        "`.hydra/config.yaml` or `<experiment>.yaml`",
        patterns=("*.jsonl",),
        left_out="rollouts of training; what is not a number",
        tried="verl 0.9.1",
    ),
    "tensorboard": Format(
        ("import", "collect"),
        "event files",
        "a folder of event files",
        "every scalar; settings from hparams, the Trainer's text `args`, a table `|param|value|`, or Lightning's "
        "`hparams.yaml`",
        patterns=("*tfevents*",),
        left_out="images, histograms and other summaries, events above 64 KiB unread; folders of ranks other than 0",
        tried="tensorboard 2.21.0, torch 2.13.0",
    ),
    "mlflow": Format(
        ("import", "collect"),
        "mlflow.db, mlruns/",
        "`mlflow.db`, `mlruns/`, one experiment or run, or a folder with such at any depth",
        "metrics, parameters, the tag `seed`",
        patterns=("*.db", "meta.yaml"),
        left_out="deleted runs, system metrics, artifacts",
        tried="MLflow 3.17.2",
    ),
    "wandb": Format(
        ("import", "collect"),
        "offline runs, exported CSV",
        "`run-*.wandb`, `wandb/`, or exported CSV: a file, or a folder of them",
        "history, configuration, summary. W&B need not be installed",
        patterns=("*.wandb", "*.csv"),
        left_out="CSV files beside `.wandb`; system metrics, tables, histograms, media, text",
        tried="W&B 0.31.0",
    ),
    "trackio": Format(
        ("import", "collect"),
        "SQLite files",
        "a project's `.db`, or a folder with such files at any depth, `~/.cache/huggingface/trackio`",
        "numeric metrics, configuration",
        patterns=("*.db",),
        left_out="system metrics, tables, histograms, media, traces",
        tried="trackio 0.43.0",
    ),
    "evaluation": Format(
        ("import",),
        "what compare reads",
        "samples of lm-evaluation-harness, logs of Inspect, tables of items, or a folder of them",
        "every metric as items of protocol `evaluation`; the task is the subset. A run is a folder; of Inspect's logs "
        "a folder's of one model",
        left_out="as for each of these formats; tables without item and value",
    ),
}


def formats_of(use: str) -> dict[str, Format]:
    """Return the formats that a command reads."""
    return {name: each for name, each in FORMATS.items() if use in each.uses}
