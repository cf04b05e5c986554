"""Out of memory on a device: the micro-batch is halved, the step is done again, and its gradient is the same."""

import pytest
import torch
from torch import nn

from tests.trainers.debias.helpers import config, debias_stage, run_prepare, run_train
from trainers.debias import train as debias_train
from trainers.parallel.group import Group
from trainers.running.micro_batch import MicroBatch, OutOfMemory


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing lies on a device here: searching for what could be freed takes a second each time."""
    monkeypatch.setattr("trainers.running.micro_batch.gc.collect", lambda: 0)


class Device:
    """Holds `rows` rows: a forward pass of more raises what torch raises on an accelerator."""

    def __init__(self, rows):
        self.rows, self.refused = rows, []

    def load(self, count):
        if count > self.rows:
            self.refused.append(count)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore of it.")


def gradient_of(micro_batch, device, rows=10, features=3):
    """The gradient of a mean over `rows` rows, taken through `micro_batch`, and the order in which rows were seen."""
    model = nn.Linear(features, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(model.weight, 0.5)
    data = torch.randn(rows, features, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    seen = []

    def work(part):
        device.load(len(part))
        (model(data[part]).square().sum() / rows).backward()
        seen.append(part.tolist())
        return float(len(part))

    weights = micro_batch.run(torch.arange(rows), work, lambda: model.zero_grad(set_to_none=True))
    assert sum(weights) == rows  # results of the failed passes are not among them
    return model.weight.grad, seen


@pytest.mark.parametrize(
    ("rows", "sizes"), [(10, []), (9, [5]), (5, [5]), (4, [5, 3]), (2, [5, 3, 2]), (1, [5, 3, 2, 1])]
)
def test_the_size_is_halved_until_it_fits_and_the_gradient_is_that_of_all_rows(rows, sizes):
    expected, _ = gradient_of(MicroBatch(), Device(10))
    halved = []
    found, seen = gradient_of(MicroBatch(None, halved.append), Device(rows))
    assert halved == sizes
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)
    assert seen[-1][-1] == 9


def test_gradients_of_a_pass_that_failed_in_its_middle_do_not_count_twice():
    device = Device(10)
    expected, _ = gradient_of(MicroBatch(4), device)
    micro_batch = MicroBatch(4)
    loads = device.load
    calls = iter([None, torch.OutOfMemoryError("full")])

    def load(count):
        loads(count)
        if error := next(calls, None):
            raise error

    device.load = load
    found, seen = gradient_of(micro_batch, device)
    assert [len(part) for part in seen] == [4, 2, 2, 2, 2, 2]  # the first of the failed pass, then all again
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)


def test_one_row_that_does_not_fit_is_an_error_that_says_what_to_do():
    with pytest.raises(OutOfMemory) as caught:
        gradient_of(MicroBatch(2), Device(0))
    assert str(caught.value) == (
        "out of memory with one row at a time (CUDA out of memory. Tried to allocate 2.00 GiB.); "
        "use a smaller model, shorter sequences or more devices"
    )


def test_other_errors_and_impossible_sizes_are_not_swallowed():
    def work(part):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        MicroBatch(2).run([0, 1, 2], work)
    with pytest.raises(ValueError, match="at least 1"):
        MicroBatch(0)
    assert MicroBatch(2).run([], work) == []


def test_a_stage_tells_its_log_and_its_metrics(tmp_path, caplog):
    stage = debias_stage(tmp_path, "train", None, {})
    stage.log_metrics(7, {"train/loss": 1.0})
    micro_batch, device = stage.micro_batch(8), Device(2)
    for _ in range(2):  # the smaller size is kept
        gradient_of(micro_batch, device)
        assert (micro_batch.size, device.refused) == (2, [8, 4])
    assert stage.metrics.rows[1:] == [
        (7, "memory/halvings", 1.0),
        (7, "memory/micro_batch", 4.0),
        (7, "memory/halvings", 2.0),
        (7, "memory/micro_batch", 2.0),
    ]
    assert "the size of micro-batches is now 2, and the effective batch size does not change" in caplog.text


# --- study debias -----------------------------------------------------------------------------------------------


def test_a_rank_without_rows_goes_along_with_a_gradient_of_zeros():
    class First(Group):
        rank, size = 0, 2

        def __init__(self):
            """Nobody to meet."""

        def _results(self, counts, results):
            assert counts == [False, True]
            return results

    weight, micro_batch = torch.ones(2, requires_grad=True), MicroBatch(2, ranks=First())

    def work(part):
        micro_batch.backward((part * weight).sum())
        return len(part)

    assert micro_batch.run(torch.ones(1, 2), work) == [1]
    assert weight.grad.tolist() == [0, 0]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return run_prepare(tmp_path_factory.mktemp("memory"), "llama")


# Every part of the objective that looks at all items at once: reward, KL, curriculum, fairness.
ALL_AT_ONCE = {
    "grpo": {"weight": 0.5},
    "rcs": {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.5, 1.0, 2.0]},
    "mo_fairness_weight": 0.1,
}


def test_debias_learns_the_same_with_half_the_memory(tmp_path, inputs, monkeypatch):
    settings = config(n_epochs=1, **ALL_AT_ONCE)
    gradients = []
    shift_gradients = debias_train.shift_gradients

    def record(model, edited):
        found = shift_gradients(model, edited)
        gradients.extend(gradient.clone() for gradient in found.values())
        return found

    monkeypatch.setattr(debias_train, "shift_gradients", record)
    whole = run_train(tmp_path / "whole", inputs, settings)
    expected = gradients.copy()
    gradients.clear()
    size = settings.edit.batch_size
    device, score_items = Device(size // 2), debias_train.score_items

    def scarce(model, prepared, indices):
        device.load(len(indices))
        return score_items(model, prepared, indices)

    monkeypatch.setattr(debias_train, "score_items", scarce)
    halved = run_train(tmp_path / "halved", inputs, settings)
    assert device.refused == [size]
    for one, other in zip(expected, gradients, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)
    before = {(s, n): v for s, n, v in whole.metrics.rows if not n.endswith("wall_s")}
    after = {(s, n): v for s, n, v in halved.metrics.rows if not n.endswith("wall_s")}
    assert after.pop((0, "memory/halvings")) == 1
    assert after.pop((0, "memory/micro_batch")) == size // 2
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
