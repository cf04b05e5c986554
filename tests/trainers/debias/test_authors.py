"""Three steps from the true start beside BiasEdit's own code (github.com/zjunlp/BiasEdit, commit a465ef42).

`biasedit_steps.json` holds what its `editor/base.py`, `editor/malmen.py` and `nets.py` gave in float64 on the case made
here: losses, norm of the gradient before clipping, and per parameter the norm of its gradient and of its way from the
start. Model and network are filled by a formula, so that no generator of random numbers has a part in it. The numbers
were written once, by running that code on `case`; the code itself is not here.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from tests.trainers.debias.helpers import config, debias_stage, write_assets
from trainers.assets import files
from trainers.debias import prepare
from trainers.debias.measure import load_suffix
from trainers.debias.prepared import Prepared
from trainers.debias.train import Trainer
from trainers.models.causal import load_model

RECORDED = json.loads((Path(__file__).parent / "biasedit_steps.json").read_text())
STEPS, ITEMS = 3, 7


def fill(module: torch.nn.Module, width: float) -> None:
    """Overwrite every parameter of two or more dimensions by `width` times a sine of its entries' numbers."""
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(module.named_parameters())):
            if parameter.dim() > 1:
                entries = torch.arange(1, parameter.numel() + 1, dtype=torch.float64)
                parameter.copy_((width * torch.sin(entries * (1.3 + 0.37 * number))).view_as(parameter))


def case(folder, architecture):
    """A trainer at its start, on a model and a network without chance; and the settings."""
    settings = config(
        edit={"modules": {"last": 2}, "n_edits": ITEMS, "batch_size": 4},
        max_grad_norm=1.0,
        dtype="float64",
        accumulation_steps=1,
    )
    assets = write_assets(folder, architecture)
    model = load_model(files(assets["model"]))
    fill(model, 0.3)
    model.save_pretrained(files(assets["model"]))
    prepare.run(debias_stage(folder, "prepare", settings, assets))
    inputs = {"model": assets["model"], "prepare": folder / "prepare"}
    prepared = Prepared(inputs["prepare"])
    stage = debias_stage(folder, "train", settings, inputs)
    trainer = Trainer(stage, prepared, load_suffix(files(inputs["model"]), prepared))
    for network in trainer.hypernetwork.networks.values():
        for block in network.blocks:
            fill(torch.nn.ParameterList([block.A]), math.sqrt(2))  # variance 1, as BiasEdit draws it
    return trainer, inputs


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_three_steps_equal_those_of_the_authors_code(architecture, tmp_path):
    trainer, _ = case(tmp_path, architecture)
    items = trainer.prepared.indices("train")
    start = {name: p.detach().clone() for name, p in trainer.hypernetwork.named_parameters()}
    logged: dict[str, float] = {}
    trainer.stage.log_metrics = lambda step, values: logged.update(values)
    for step, expected in enumerate(RECORDED[architecture]):
        trainer.step([items[step : step + ITEMS]])
        for name in ("edit_loss", "loc_loss", "shift_norm"):
            assert logged[f"train/{name}"] == pytest.approx(expected[name], rel=1e-4), (step, name)
        assert logged["train/grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3), step
        clipped = max(1.0, expected["grad_norm"])
        for name, parameter in trainer.hypernetwork.named_parameters():
            gradient, way = expected["parameters"][name]
            assert float(parameter.grad.norm()) * clipped == pytest.approx(gradient, rel=2e-3, abs=1e-9), (step, name)
            moved = float((parameter.detach() - start[name]).norm())
            assert moved == pytest.approx(way, rel=2e-2, abs=1e-9), (step, name)
