"""What is measured here, as the audit sets it beside a source's numbers."""

import pandas as pd
import pytest

from ablation.audit.measured import measured, published_value
from ablation.config.published_schema import PublishedFile
from ablation.judge.measurements import read_measurements
from ablation.store.database import Store
from tests.ablation.judge.test_verdicts import edit_analysis, run


def report(columns, **more):
    """What a source reports of v1, as distances."""
    known = {"source": "x", "metric": "hit_distance", "target": "0.5", "columns": columns}
    return PublishedFile.model_validate(known | {"rows": {"v1": ["0.1"] * len(columns)}} | more)


def test_measured_cells_and_why_they_may_differ(tmp_path):
    _, results = run(tmp_path)
    published = report(columns=["gender", "race", "mean"], items={"gender": 253, "race": 400}, model="gpt2-medium")
    with Store(results / "tracker.duckdb") as store:
        ours = measured(store, read_measurements(store, "toy"), published)
        cells = store.results("toy")
    expected = cells[(cells["variant"] == "v1") & (cells["metric"] == "edited/gender/distance")]["value"].mean()
    cell = ours.rows["v1"]["gender"]
    assert cell.value == pytest.approx(expected)
    assert cell.low <= cell.value <= cell.high
    for words in ("scale simulated", "model is gpt2-medium", "gender 400 against 253"):
        assert words in ours.difference
    assert "race" not in ours.difference


def test_a_published_rate_stands_beside_the_value_that_it_is_a_mean_of(tmp_path):
    """The analysis plan decides by a graded value; what the source printed is the share of items."""

    def graded(plan):
        for file in plan.parent.glob("stages/*/*/*/items.parquet"):
            rows = pd.read_parquet(file)
            pd.concat([rows, rows.assign(name="graded", value=0.9)]).to_parquet(file, index=False)
        edit_analysis(value="graded")(plan)

    _, results = run(tmp_path, graded)
    with Store(results / "tracker.duckdb") as store:
        cells = store.results("toy")
        name = published_value(store, "toy", report(columns=["gender"]))
        ours = measured(store, read_measurements(store, "toy", name), report(columns=["gender"]))
        assert published_value(store, "toy", report(columns=["gender"], metric="wins")) is None
        planned = measured(store, read_measurements(store, "toy"), report(columns=["gender"]))
    expected = cells[(cells["variant"] == "v1") & (cells["metric"] == "edited/gender/distance")]["value"].mean()
    assert ours.rows["v1"]["gender"].value == pytest.approx(expected)
    assert planned.rows["v1"]["gender"].value == pytest.approx(0.4)
