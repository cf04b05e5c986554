"""Everything in a collected database but what two equal runs may differ in, compared row for row."""

import json

import duckdb

# Left out, with the reason:
#   meta.created, meta.sources                     when it was collected, and of which files
#   the order of the stages                        a stage that ran again is inserted last
#   stages.started, ended, wall_s, device_hours    times
#   stages.attempt                                 how often the stage was begun: what the faults change
#   studies.definition: analysis_history.since     when the analysis plan was first collected
#   provenance: argv (holds a process id), environment.CUDA_VISIBLE_DEVICES (which of the devices was free),
#     environment.ABLATION_LEASES (a folder of the copy), inputs.*.ended (a time)
# and the values, not the rows, of metrics that are times.
TIMES = ("name LIKE 'time/%'", "name LIKE '%wall_s'")
SELECT = {
    "meta": "SELECT * FROM meta WHERE key NOT IN ('created', 'sources') ORDER BY rowid",
    "stages": "SELECT * EXCLUDE (started, ended, wall_s, attempt, device_hours) FROM stages ORDER BY rowid",
    "metrics": f"SELECT key, step, name, CASE WHEN {' OR '.join(TIMES)} THEN NULL ELSE value END FROM metrics "
    "ORDER BY key, rowid",
    **{table: f"SELECT * FROM {table} ORDER BY key, rowid" for table in ("items", "provenance", "weights")},
}


def content(path):
    """Return {table: rows in their order}."""
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        found = {
            table: connection.execute(SELECT.get(table, f"SELECT * FROM {table} ORDER BY rowid")).fetchall()
            for table in tables
        }
    found["provenance"] = [(key, _provenance(json.loads(data))) for key, data in found["provenance"]]
    found["studies"] = [tuple(map(_without_times, row)) for row in found["studies"]]
    return {table: [tuple(map(repr, row)) for row in rows] for table, rows in found.items()}


def _without_times(cell):
    """A cell of `studies`; the times in a definition's history left out."""
    if not str(cell).startswith("{"):
        return cell
    definition = json.loads(cell)
    for entry in definition["analysis_history"]:
        entry.pop("since")
    return definition


def _provenance(data):
    data.pop("argv")
    for name in ("CUDA_VISIBLE_DEVICES", "ABLATION_LEASES"):
        data["environment"].pop(name, None)
    for described in data["inputs"].values():
        described.pop("ended")
    return data


def assert_equal(found, expected):
    found, expected = content(found), content(expected)
    assert found.keys() == expected.keys()
    for table, rows in expected.items():
        assert len(found[table]) == len(rows), table
        for one, other in zip(found[table], rows, strict=True):
            assert one == other, table
    assert expected["metrics"]
    assert expected["items"]
