"""The `code` of a stage's config.json, for tests that write one by hand."""

from pathlib import Path

from ablation.contract.fingerprint import HARNESS, code_of
from ablation.plan.keys import config_modules
from tests.make_stage import part_names

ROOT = Path(__file__).resolve().parents[1]


def stage_code(entry, config, stage):
    """Return what the plan would write for a stage of this whole configuration."""
    parts = part_names(config, stage)
    return code_of((entry, *HARNESS), ROOT, parts=parts, exclude=config_modules(type(config)))._asdict()
