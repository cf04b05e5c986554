"""The digest and the sketch by which the tracker sees that a change had no effect on training."""

import json

import pytest
import torch

from trainers.policy.config import Evaluate
from trainers.running.weights import MeasuredModels, write_weights


def written(tmp_path, start, trained):
    write_weights(tmp_path, start, trained)
    content = json.loads((tmp_path / "weights.json").read_text())
    return content["digest"], torch.tensor(content["moved"], dtype=torch.float64)


def tensors(seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {"a": scale * torch.randn(40, 50, generator=generator), "b": scale * torch.randn(3000, generator=generator)}


def plus(one, other):
    return {name: one[name] + other[name] for name in one}


def test_digest_is_of_values_names_and_shapes(tmp_path):
    start, trained = tensors(0), tensors(1)
    digest = written(tmp_path, start, trained)[0]
    assert digest == written(tmp_path, start, {name: t.clone() for name, t in reversed(trained.items())})[0]
    flipped = {name: t.clone() for name, t in trained.items()}
    flipped["b"][7] = torch.nextafter(flipped["b"][7], torch.tensor(9.0))
    renamed = {"a": trained["a"], "c": trained["b"]}
    reshaped = trained | {"a": trained["a"].T.contiguous().T.reshape(50, 40)}
    for other in (flipped, renamed, reshaped):
        assert digest != written(tmp_path, {name: torch.zeros_like(t) for name, t in other.items()}, other)[0]


def test_distance_of_sketches_is_the_distance_of_the_ways(tmp_path):
    start, way, little = tensors(0), tensors(1, 0.01), tensors(2, 0.0001)
    _, one = written(tmp_path, start, plus(start, way))
    _, other = written(tmp_path, start, plus(plus(start, way), little))
    length = sum(float(t.double().square().sum()) for t in way.values()) ** 0.5
    assert float(one.norm()) == pytest.approx(length, rel=0.2)
    assert float((one - other).norm() / one.norm()) == pytest.approx(0.01, rel=0.3)


def measured(folder, *models, samples=4, data="d1", tokenizer="{}"):
    files = {"config.json": "{}", "tokenizer.json": tokenizer, "README.md": folder.name}
    (folder / "model").mkdir(parents=True)
    for name, content in files.items():
        (folder / "model" / name).write_text(content)
    made = MeasuredModels(Evaluate(samples=samples), {"data": folder.parent / data})
    for model in models:
        made.add(model, folder / "model")
    made.write(folder)
    content = json.loads((folder / "weights.json").read_text())
    assert content["moved"] == []
    return content["digest"]


def test_a_measurement_is_the_same_with_the_same_models_settings_and_data_only(tmp_path):
    one, other = (
        {"a": torch.arange(3.0), "b": torch.ones(2)},
        {"a": torch.arange(3.0), "b": torch.ones(2) * (1 + 2**-23)},
    )
    same = measured(tmp_path / "1", one, other)
    assert same == measured(tmp_path / "2", dict(reversed(one.items())), other)
    different = [
        measured(tmp_path / "3", one, one),
        measured(tmp_path / "4", one),
        measured(tmp_path / "5", other, one),
        measured(tmp_path / "6", one, other, samples=5),
        measured(tmp_path / "7", one, other, data="d2"),
        measured(tmp_path / "8", one, other, tokenizer="{ }"),
    ]
    assert len({same, *different}) == 7
