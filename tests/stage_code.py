"""The `code` of a stage's config.json, for tests that write one by hand."""

from pathlib import Path

from ablation.contract.fingerprint import HARNESS, code_of
from ablation.plan.keys import config_modules

ROOT = Path(__file__).resolve().parents[1]


def stage_code(entry, config, stage):
    """Return what the plan would write for a stage of this whole configuration."""
    modules = (entry, *config.used_modules(stage), *HARNESS)
    return code_of(modules, ROOT, exclude=config_modules(type(config)))._asdict()
