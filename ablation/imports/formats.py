"""The formats that can be imported, and their readers. A reader is imported when it is asked for."""

from importlib import import_module

from ablation.config.settings import suggest
from ablation.contract.errors import ConfigError
from ablation.imports.run import Reader

FORMATS = {
    "trainer_state": "Hugging Face Trainer and TRL: trainer_state.json, completions_*.parquet",
    "verl": "verl's file logger (JSONL) and validation_data_dir",
    "tensorboard": "TensorBoard event files",
    "mlflow": "MLflow: mlflow.db, mlruns/",
    "wandb": "Weights & Biases: offline runs (.wandb), exported CSV",
    "trackio": "trackio's SQLite files",
    "database": "tracker.duckdb of this project from another machine",
}


def load_reader(name: str) -> Reader:
    """Return the reader of a format. Raises ConfigError where there is none."""
    if name not in FORMATS:
        raise ConfigError("import", "FORMAT", name, "is not a format", suggest(name, FORMATS))
    read: Reader = import_module(f"ablation.imports.{name}").read
    return read
