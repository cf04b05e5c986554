"""Progress, which a slow machine prints after five seconds, is in no test but its own."""

import math

import pytest


@pytest.fixture(autouse=True)
def _silent(monkeypatch):
    monkeypatch.setattr("ablation.cli.import_runs._SILENT", math.inf)
