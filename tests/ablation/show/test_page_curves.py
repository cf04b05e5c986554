"""The curves of a page: bins, what is left out, runs that did not end well."""

import duckdb

from ablation.config.study_schema import CurveDefinition
from ablation.show.page.data import plan_curves, study_curves
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
        budget = type(full)(full.kept, {}, bins=4)
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
        tight = plan_curves(store, definitions, values=3 * 4 * 40)  # room for 3 metrics of 4 runs at 40 bins
        shown = study_curves(store, "toy", definitions["toy"], tight)
    assert [(m["name"], m["label"]) for m in shown["metrics"]] == [
        ("train/m05", "last"),
        ("train/m02", "mid"),
        ("train/m00", "train/m00"),
    ]
    assert tight.left_out == {"toy": 3}


def test_a_run_that_did_not_end_well_is_marked(tmp_path):
    database = collected(tmp_path, Study(states={("v1", 1): "diverged"}))
    with Store(database) as store:
        definitions = {"toy": store.study("toy")}
        shown = study_curves(store, "toy", definitions["toy"], plan_curves(store, definitions))
    ok = {(shown["variants"][s[0]], s[1]): s[2] for s in shown["metrics"][0]["series"]}
    assert ok == {(v, s): (v, s) != ("v1", 1) for v in ("v0", "v1", "v2", "v3") for s in (0, 1)}
