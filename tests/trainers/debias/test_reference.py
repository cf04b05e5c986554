"""The fast path (cached prefix, closed-form derivative, shared prefixes) against reference.py (plain, padded)."""

import copy

import pytest
import torch

from tests.trainers.debias.helpers import config, debias_stage, run_prepare
from tests.trainers.debias.reference import Editor
from trainers.assets import files
from trainers.debias import prepare
from trainers.debias.editor import micro_batches, predict
from trainers.debias.measure import load_suffix, measure
from trainers.debias.model import OutputMatrix, SuffixModel, label_log_probs, log_partition, reference, token_kl
from trainers.debias.prepared import Prepared
from trainers.debias.train import Trainer
from trainers.models.causal import blocks, load_model

GRPO = {"weight": 0.3, "reward": "balanced", "beta": 0.1, "gamma": 1.0}
OBJECTIVES = {
    "baseline": {},
    "directional": {"grpo": {**GRPO, "reward": "directional"}},
    "everything": {
        "grpo": GRPO,
        "rcs": {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.5, 1.0, 2.0]},
        "mo_fairness_weight": 0.2,
    },
}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def prepared_stage(request, tmp_path_factory):
    tmp = tmp_path_factory.mktemp(request.param)
    return tmp, run_prepare(tmp, request.param)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("batch_size", [7, 3])
def test_step_equals_reference(prepared_stage, objective, batch_size):
    tmp, inputs = prepared_stage
    settings = config(edit={"modules": {"last": 2}, "n_edits": 7, "batch_size": batch_size}, **OBJECTIVES[objective])
    prepared, generator = Prepared(inputs["prepare"]), torch.Generator().manual_seed(5)
    suffix = load_suffix(files(inputs["model"]), prepared)
    trainer = Trainer(debias_stage(tmp, "probe", settings, inputs), prepared, suffix)
    with torch.no_grad():  # away from the zeros of the start: every parameter has a gradient, blocks cut off some rows
        for parameter in trainer.hypernetwork.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    names = [module.name for module in prepared.modules]
    plain = Editor(load_model(files(inputs["model"])), names, copy.deepcopy(trainer.hypernetwork), settings)
    items = prepared.indices("train")[2:9]
    batches = micro_batches(items, batch_size)

    figures = trainer.edit_batch(items, 1.0)
    edits = predict(trainer.hypernetwork, prepared, batches, chunk=64, update_normaliser=False)
    shifts = {name: edit.shift for name, edit in edits.items()}
    scored = measure(trainer.model, prepared, shifts, batches)
    kinds = ("anti", "stereo", "unrelated")
    parts = [{kind: [prepared.items[i].tokens[kind] for i in part] for kind in kinds} for part in batches]
    expected = plain.run(parts)

    assert figures["loss"] == pytest.approx(expected.loss, rel=1e-5, abs=1e-6)
    for name, value in expected.figures.items():
        assert figures[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    torch.testing.assert_close(torch.cat([s.p for s in scored]), expected.p, rtol=1e-5, atol=0)
    torch.testing.assert_close(torch.cat([s.logp for s in scored]), expected.logp, rtol=1e-5, atol=0)
    assert torch.cat([s.ss for s in scored]).mean().item() == expected.ss
    for name in names:
        scale = expected.shifts[name].abs().max()
        torch.testing.assert_close(shifts[name], expected.shifts[name], rtol=1e-4, atol=1e-4 * float(scale))
    for name, parameter in trainer.hypernetwork.named_parameters():
        gradient = expected.gradients[name]
        scale = float(gradient.abs().max())
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4 * scale, msg=name)
        assert scale > 0, f"{name} has no gradient in the reference: nothing is tested"


def test_cached_unedited_scores_equal_a_plain_forward(prepared_stage):
    _, inputs = prepared_stage
    prepared = Prepared(inputs["prepare"])
    model = load_model(files(inputs["model"]))
    for index in (0, len(prepared.items) - 1):
        for number, kind in enumerate(("anti", "stereo", "unrelated")):
            tokens = torch.tensor([prepared.items[index].tokens[kind]])
            logp = model(input_ids=tokens).logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])
            p, mean = prepared.scores[index, number].tolist()
            assert p == pytest.approx(logp.exp().mean().item(), rel=1e-5)
            assert mean == pytest.approx(logp.mean().item(), rel=1e-5)


@pytest.mark.parametrize("overlooked", ["attention_mask", "position_ids"])
def test_a_model_that_overlooks_mask_or_positions_is_refused(prepared_stage, overlooked, monkeypatch, tmp_path):
    _, inputs = prepared_stage
    told = SuffixModel._attention

    def without(model, mask, positions):
        arguments = told(model, mask, positions)
        return arguments if positions is None else arguments | {overlooked: None}

    monkeypatch.setattr(SuffixModel, "_attention", without)
    stage = debias_stage(tmp_path, "prepare", config(), {**inputs, "data": inputs["model"].parent / "data"})
    with pytest.raises(ValueError, match="ignore the attention mask or the positions"):
        prepare.run(stage)


def head_case():
    """An output matrix with a bias, which the models above have not."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 8, generator=generator, dtype=torch.float64)
    offset = torch.randn(50, generator=generator, dtype=torch.float64)
    rows = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    inverse = torch.tensor([0, 1, 1, 2, 3, 0])
    hidden = rows[inverse].requires_grad_()
    return hidden, torch.tensor([3, 4, 7, 1, 49, 0]), torch.tensor([0, 1, 3, 4]), inverse, OutputMatrix(weight, offset)


def test_label_log_probs_and_gradient():
    hidden, labels, rows, inverse, matrix = head_case()
    logp, partition = label_log_probs(hidden, labels, rows, inverse, matrix)
    logits = torch.nn.functional.linear(hidden, matrix.weight, matrix.bias)
    expected = logits.log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(logp, expected)
    torch.testing.assert_close(partition, logits.logsumexp(-1))
    weights = torch.linspace(-1, 2, 6, dtype=torch.float64)
    (fast,) = torch.autograd.grad(
        (weights * logp.exp() + weights.square() * partition).sum(), hidden, retain_graph=True
    )
    (plain,) = torch.autograd.grad((weights * expected.exp() + weights.square() * logits.logsumexp(-1)).sum(), hidden)
    torch.testing.assert_close(fast, plain)


def test_token_kl_is_the_kl_of_the_whole_vocabulary():
    hidden, _, rows, inverse, matrix = head_case()
    current = (hidden.detach() + 0.1 * torch.arange(48, dtype=torch.float64).view(6, 8).sin()).requires_grad_()
    mean, offset = reference(hidden.detach(), rows, inverse, matrix)
    everything = torch.arange(6)
    partition = label_log_probs(current, torch.zeros(6, dtype=torch.long), everything, everything, matrix)[1]
    kl = token_kl(current, partition, mean, offset)
    old = torch.nn.functional.linear(hidden.detach(), matrix.weight, matrix.bias).log_softmax(-1)
    new = torch.nn.functional.linear(current, matrix.weight, matrix.bias).log_softmax(-1)
    expected = (old.exp() * (old - new)).sum(-1)
    assert expected.min() > 1e-3
    torch.testing.assert_close(kl, expected)
    torch.testing.assert_close(torch.autograd.grad(kl.sum(), current), torch.autograd.grad(expected.sum(), current))


def test_chunks_change_nothing(monkeypatch):
    hidden, _, _, _, matrix = head_case()
    whole = log_partition(hidden, matrix, mean=True)
    monkeypatch.setattr("trainers.debias.model.CHUNK", 2)
    torch.testing.assert_close(log_partition(hidden, matrix, mean=True), whole)


def test_a_model_in_bfloat16_has_sums_in_float32():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 8, generator=generator).bfloat16()
    hidden, everything = torch.randn(6, 8, generator=generator).bfloat16(), torch.arange(6)
    partition, mean = log_partition(hidden, OutputMatrix(weight, None), mean=True)
    logits = hidden.float() @ weight.float().T
    assert partition.dtype == mean.dtype == torch.float32
    torch.testing.assert_close(partition, logits.logsumexp(-1), rtol=0, atol=0.05)  # logits of up to 8
    torch.testing.assert_close(mean, logits.softmax(-1) @ weight.float(), rtol=0, atol=0.05)
    logp, _ = label_log_probs(hidden, everything, everything, everything, OutputMatrix(weight, None))
    torch.testing.assert_close(logp, logits.log_softmax(-1).diagonal(), rtol=0, atol=0.05)


def test_blocks_below_the_first_edited_one_are_never_run_after_prepare(prepared_stage, monkeypatch):
    _, inputs = prepared_stage
    loaded = []

    def load(*args, **kwargs):
        loaded.append(load_model(*args, **kwargs))
        for layer in blocks(loaded[0])[1][:2]:
            monkeypatch.setattr(layer, "forward", lambda *args, **kwargs: pytest.fail("a frozen block was run"))
        return loaded[0]

    whole = SuffixModel(load_model(files(inputs["model"])), config().edit.modules)
    monkeypatch.setattr("trainers.debias.measure.load_model", load)
    suffix = load_suffix(files(inputs["model"]), Prepared(inputs["prepare"]))
    assert loaded
    assert suffix.first == 2
    assert torch.equal(suffix.matrix.weight, whole.matrix.weight)
