"""What holds for every reader: paths that are not its own, places with odd names, databases that are cut off."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from ablation.config.formats import formats_of
from ablation.contract.errors import ConfigError
from ablation.readers import sqlite
from ablation.readers.run import load_reader
from tests.ablation.readers.samples import row, write_samples
from tests.ablation.readers.stored import make, points, read_all

WRITTEN = Path(__file__).parent / "written"

PLACES = {"mlflow": ("mlflow.db", "mlruns"), "trackio": ("grid.db", "study.db"), "wandb": ("study", "wandb")}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return {name: make(name, "", "written", tmp_path_factory.mktemp(name)) for name in PLACES}


FOLDERS = {
    "tensorboard": (WRITTEN / "tensorboard/lr_0.1/seed_0", 2),
    "trainer_state": (WRITTEN / "trainer/base/seed_0", 3),
    "verl": (WRITTEN / "verl/grpo", 4),
    "wandb": ("study/wandb/offline-run-20261122_132552-base0", 1),
    "mlflow": ("mlflow.db", 1),
    "trackio": ("grid.db", 1),
    "lm_eval": (None, 1),
    "evaluation": (None, 2),  # samples, and the results that explain them
}


@pytest.mark.parametrize("name", FOLDERS)
def test_each_entry_of_a_folder_is_read_or_left_out_with_a_line(name, stored, tmp_path):
    """Links are read, once; hidden and backup copies, and links to nothing, are counted."""
    source, files = FOLDERS[name]
    if source is None:
        source = write_samples(tmp_path / "made", [row(at, 1.0) for at in range(3)]).parent
    source = source if isinstance(source, Path) else stored[name] / source
    here, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    here.mkdir()
    suffix = source.suffix  # a file, or a folder
    copy = shutil.copyfile if suffix else shutil.copytree
    for place in (here / f"a{suffix}", elsewhere, here / f".{'_' * bool(suffix)}a{suffix}", here / f"a{suffix}.bak"):
        copy(source, place)
    (here / f"b{suffix}").symlink_to(elsewhere)
    (here / f"c{suffix}").symlink_to(here / f"a{suffix}")
    (here / f"d{suffix}").symlink_to(tmp_path / "nowhere")
    read, told = load_reader(name, "collect" if name == "lm_eval" else "import"), []
    runs = list(read(here, told.append))
    alone = [len(list(read(place, lambda _: None))) for place in (here / f"a{suffix}", elsewhere)]
    assert len(runs) == (1 if name in ("lm_eval", "wandb") else sum(alone))
    told = [line.removeprefix(f"{here}: ") for line in told]
    assert any(
        line.startswith(f"hidden files, temporary files or backup copies are left out ({2 * files})") for line in told
    ), told
    assert f"broken links are left out (1): d{suffix}" in told
    assert any(line.startswith("links to files that are read anyway are left out (1)") for line in told), told


@pytest.mark.parametrize("name", formats_of("import"))
def test_what_is_not_of_the_format_is_refused_by_its_name(name, tmp_path):
    (tmp_path / "empty").mkdir()
    for file in ("notes.txt", "text.db", "text.wandb", "text.csv"):
        (tmp_path / file).write_text("no log\n")
    sqlite3.connect(tmp_path / "runs.db").execute("CREATE TABLE runs (a)").connection.close()
    sqlite3.connect(tmp_path / "metrics.db").execute("CREATE TABLE metrics (a)").connection.close()
    view = "CREATE VIEW metrics AS SELECT 1 AS id, 'r' AS run_name, 1 AS step, '{}' AS metrics, 't' AS timestamp"
    sqlite3.connect(tmp_path / "view.db").execute(view).connection.close()
    for place in sorted(tmp_path.iterdir()):
        with pytest.raises(ConfigError, match=place.name):  # noqa: PT012 - the second says what to do
            list(load_reader(name)(place, print))
            pytest.fail(f"{name} must raise ConfigError, which names the path, where nothing there is of its format")
    if name in PLACES:
        for place in ("is not there", "is not there.csv"):
            with pytest.raises(ConfigError, match=place):
                list(load_reader(name)(tmp_path / place, print))


@pytest.mark.parametrize(("name", "file"), [("mlflow", "mlflow.db"), ("trackio", "grid.db"), ("trackio", "live.db")])
def test_of_a_database_without_its_end_nothing_is_read(name, file, stored, tmp_path):
    """What SQLite would read is partly made up of zeros."""
    content = (stored[name] / file).read_bytes()
    for end in [*range(0, len(content), 40_000), 10, 99, 100, 4096, 5000, len(content) - 4096, len(content) - 1]:
        (tmp_path / file).write_bytes(content[:end])
        with pytest.raises(
            ConfigError, match=rf"{file}: (is damaged \(the end of the file is missing\)|holds no |is not an SQLite )"
        ):
            list(load_reader(name)(tmp_path / file, print))


@pytest.mark.parametrize(("name", "file"), [("mlflow", "mlflow.db"), ("trackio", "grid.db")])
def test_what_a_writer_has_not_committed_is_not_read(name, file, stored, tmp_path, monkeypatch):
    path, change = tmp_path / file, {"mlflow": "value = 77", "trackio": "metrics = '{\"loss\": 77}'"}[name]
    shutil.copyfile(stored[name] / file, path)

    def read():
        return {key: points(run) for key, run in read_all(load_reader(name), path)[0].items()}

    before = read()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute(f"UPDATE metrics SET {change}")
    assert read() == before
    writer.execute("COMMIT")
    assert {value for found in read().values() for value in found.values()} <= {77.0, "NaN"}
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.1)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("BEGIN EXCLUSIVE")
    if name == "mlflow":  # a write-ahead log lets readers go on
        with pytest.raises(ConfigError, match="locked"):
            read()
    writer.close()
