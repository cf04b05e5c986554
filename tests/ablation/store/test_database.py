"""The reader cannot write or look elsewhere, and its views say what the shards say."""

import math
import shutil

import duckdb
import numpy as np
import pandas as pd
import pytest

from ablation.contract.errors import ConfigError, TrackerError
from ablation.store.collect import collect
from ablation.store.current import load_or_collect
from ablation.store.database import DATABASE, Store
from tests.simulate import Study, simulate, stage_dir


def opened(results, *studies):
    simulate(results, studies or (Study(),))
    collect(results)
    return Store(results / DATABASE)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO meta VALUES ('a', 'b')",
        "DROP VIEW runs",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "ATTACH '/tmp/other.duckdb'",
        "COPY meta TO '/tmp/leak.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "LOAD httpfs",
    ],
)
def test_a_query_cannot_write_nor_leave_the_database(results, query):
    with opened(results) as store, pytest.raises(TrackerError):
        store.sql(query)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        *((nothing, "the query contains no statement; write one") for nothing in (";", "", " ; ;", "-- x")),
        ("SELECT * FROM nothere", "nothere"),
    ],
)
def test_a_query_without_a_statement_or_mistyped_is_one_line(results, query, words):
    with opened(results) as store, pytest.raises(TrackerError, match=words) as caught:
        store.sql(query)
    assert "\n" not in str(caught.value)


def test_figures_of_a_run_that_is_not_ok_are_no_results(results):
    plan = simulate(results, [Study(states={("v1", 0): "diverged"})])
    left = stage_dir(plan, "toy", "v1", 0, "evaluate") / "metrics.parquet"  # of an earlier attempt, say
    left.write_bytes((stage_dir(plan, "toy", "v0", 0, "evaluate") / "metrics.parquet").read_bytes())
    with Store(collect(results).database) as store:
        frame = store.results("toy")
    assert ("v1", 0) not in set(zip(frame["variant"], frame["seed"], strict=True))


def test_results_take_the_last_step_and_nothing_infinite(results):
    plan = simulate(results)
    shard = stage_dir(plan, "toy", "v0", 0, "evaluate") / "metrics.parquet"
    rows = [(5, "m", 2.0), (9, "m", 3.0), (1, "m", 1.0), (1, "bad", 1.0), (2, "bad", math.inf)]
    rows += [(1, "nan", 1.0), (2, "nan", math.nan)]  # pandas writes null: the step before it must not stand in for it
    pd.DataFrame(rows, columns=["step", "name", "value"]).to_parquet(shard, index=False)
    other = stage_dir(plan, "toy", "v0", 1, "evaluate") / "metrics.parquet"
    pd.DataFrame([(0, "bad", 1.0)], columns=["step", "name", "value"]).to_parquet(other, index=False)
    kept = stage_dir(plan, "toy", "v1", 0, "evaluate") / "metrics.parquet"
    rows = [(5, "m", 2.0), (9, "m", 3.0), (9, "test", 4.0), (9, "kept_step", 7.0)]
    pd.DataFrame(rows, columns=["step", "name", "value"]).to_parquet(kept, index=False)
    with Store(collect(results).database) as store:
        frame = store.results("toy")
        average = store.sql("SELECT avg(value) FROM results WHERE metric = 'bad'").iloc[0, 0]
        assert store.rows("SELECT count(*) FROM metrics WHERE value IS NULL")[1] == [(0,)]
    values = frame[(frame["variant"] == "v0") & (frame["seed"] == 0)].set_index("metric")["value"]
    assert values["m"] == 3.0
    of_kept = frame[(frame["variant"] == "v1") & (frame["seed"] == 0)].set_index("metric")["value"]
    assert (of_kept["m"], of_kept["test"]) == (2.0, 4.0)  # test: logged only after the training
    assert math.isnan(values["bad"])
    assert math.isnan(values["nan"])
    assert math.isnan(average)  # a mean over seeds does not skip it


def test_curves_are_mean_and_extremes_over_seeds(results):
    plan = simulate(results, [Study(seeds=3, steps=4, metrics=1)])
    collect(results)
    shards = [pd.read_parquet(stage_dir(plan, "toy", "v1", s, "train") / "metrics.parquet") for s in range(3)]
    expected = np.stack([shard["value"] for shard in shards])
    with Store(results / DATABASE) as store:
        curve = store.curves("toy", ["train/m00"])
    curve = curve[curve["variant"] == "v1"]
    assert curve["step"].tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(curve["mean"], expected.mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(curve["low"], expected.min(axis=0))
    np.testing.assert_array_equal(curve["high"], expected.max(axis=0))
    assert (curve["seeds"] == 3).all()


def test_long_curves_are_binned_by_neighbouring_steps(results):
    plan = simulate(results, [Study(seeds=1, steps=10, metrics=1)])
    collect(results)
    values = pd.read_parquet(stage_dir(plan, "toy", "v0", 0, "train") / "metrics.parquet")["value"].to_numpy()
    with Store(results / DATABASE) as store:
        curve = store.curves("toy", ["train/m00"], points=5)
    curve = curve[curve["variant"] == "v0"]
    assert curve["step"].tolist() == [2, 4, 6, 8, 10]
    np.testing.assert_allclose(curve["mean"], values.reshape(5, 2).mean(axis=1), rtol=1e-12)


def test_a_missing_or_foreign_file_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="the database does not exist; run `ablation collect`"):
        Store(tmp_path / DATABASE)
    (tmp_path / DATABASE).write_text("not a database")
    with pytest.raises(ConfigError, match="run `ablation collect` again"):
        Store(tmp_path / DATABASE)


def test_a_copy_of_another_version_is_refused_for_its_version(results, tmp_path):
    with opened(results, Study()):
        pass
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / DATABASE
    shutil.copy(results / DATABASE, copy)
    with duckdb.connect(str(copy)) as connection:
        connection.execute("UPDATE meta SET value = '7' WHERE key = 'schema version'")
    with pytest.raises(ConfigError, match="schema version"):
        load_or_collect(copy.parent)
