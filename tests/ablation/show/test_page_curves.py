"""The curves of a page: bins, what is left out, runs that did not end well."""

from dataclasses import replace

import duckdb

from ablation.config.study_schema import CurveDefinition
from ablation.show.page.data import FEWEST_BINS, plan_curves, study_curves
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.simulate import Study, simulate


def collected(folder, study):
    """The database of a simulated study."""
    return collect(simulate(folder / "results", [study]).parent).database


def test_a_bin_is_the_mean_of_its_finite_values(tmp_path):
    database = collected(tmp_path, Study(steps=10, metrics=1, variants=1, seeds=1))
    with duckdb.connect(str(database)) as con:
        con.execute("UPDATE metrics SET value = step WHERE name = 'train/m00'")
        con.execute("UPDATE metrics SET value = 'nan' WHERE name = 'train/m00' AND step IN (2, 7, 8, 9)")
    with Store(database) as store:
        definitions = {"toy": store.study("toy")}
        full = plan_curves(store, definitions)
        [metric] = study_curves(store, "toy", definitions["toy"], full)["metrics"]
        assert metric["per_bin"] == 1
        assert metric["steps"] == list(range(1, 11))
        budget = replace(full, bins=4)
        [metric] = study_curves(store, "toy", definitions["toy"], budget)["metrics"]
    assert (metric["per_bin"], metric["logged"], metric["steps"]) == (3, 10, [2, 5, 8, 10])
    [series] = metric["series"]
    assert series[:4] == [0, 0, True, 4]
    assert series[4] == [2, 5, None, 10]


def test_declared_curves_are_never_left_out_and_come_first(tmp_path):
    database = collected(tmp_path, Study(steps=8, metrics=6, seeds=2, variants=2))
    with Store(database) as store:
        curves = [CurveDefinition(metric="train/m05", label="last"), CurveDefinition(metric="train/m02", label="mid")]
        definitions = {"toy": store.study("toy").model_copy(update={"curves": curves})}
        tight = plan_curves(store, definitions, values=3 * 4 * FEWEST_BINS)  # room for 3 metrics of 4 runs
        shown = study_curves(store, "toy", definitions["toy"], tight)
    assert [(m["name"], m["label"]) for m in shown["metrics"]] == [
        ("train/m05", "last"),
        ("train/m02", "mid"),
        ("train/m00", "train/m00"),
    ]
    assert tight.left_out == {"toy": 3}


def test_of_too_many_seeds_the_first_are_shown(tmp_path):
    database = collected(tmp_path, Study(steps=8, metrics=2, seeds=4, variants=3))
    with duckdb.connect(str(database)) as con:  # seed 3 came first, seed 1 last
        con.execute("CREATE TABLE planned AS FROM run_stages ORDER BY seed = 1, seed <> 3, rowid")
        con.execute("DELETE FROM run_stages")
        con.execute("INSERT INTO run_stages FROM planned")
        con.execute("DROP TABLE planned")
    with Store(database) as store:
        definitions = {"toy": store.study("toy")}
        assert len(definitions["toy"].curves) == 2
        whole = plan_curves(store, definitions, values=2 * 12 * 8)
        tight = plan_curves(store, definitions, values=2 * 12 * 8 - 1)
        shown = study_curves(store, "toy", definitions["toy"], tight)
        assert (whole.seeds, whole.all_seeds("toy"), tight.seeds, tight.all_seeds("toy")) == (4, True, 3, False)
    for metric in shown["metrics"]:
        assert [series[:2] for series in metric["series"]] == [[v, s] for v in range(3) for s in (0, 2, 3)]
