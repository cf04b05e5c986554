"""Updates without padding, each beginning once, against the model's own forward and backward pass on padded rows."""

import pytest
import torch

from trainers.policy import learner as learner_module
from trainers.policy import value_model as value_module
from trainers.policy.batch import Sequences
from trainers.policy.config import Precision
from trainers.policy.learner import per_token_logps
from trainers.policy.models import Placement
from trainers.policy.plain import Packing, packs
from trainers.policy.value_model import ValueModel

from .test_sampling import PAD, SHAPES, model_of

CPU = torch.device("cpu")


def sequences(longest=6):
    """Nine responses of 1 to `longest` tokens to three prompts of different lengths, in no order."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([5, 2, 7])
    there = torch.arange(7) >= 7 - lengths[:, None]
    prompts = torch.where(there, torch.randint(2, 31, (3, 7), generator=generator), PAD)
    prompts[1, -2:] = prompts[0, -2:]  # one is the end of another
    owner = torch.tensor([2, 0, 1, 0, 2, 2, 1, 0, 0])
    mask = torch.arange(longest) < torch.tensor([3, longest, 3, 2, longest, 1, 4, 1, 2])[:, None]
    drawn = torch.randint(2, 31, (9, longest), generator=generator)
    drawn[3] = drawn[8] = drawn[1]  # its beginning, twice
    drawn[4, :2] = drawn[0, :2]  # of which each goes on in its own way
    responses = torch.where(mask, drawn, PAD)
    return Sequences(prompts[owner], there[owner].long(), responses, mask.long())


def compare(results, module, monkeypatch):
    """`results()` gives numbers and the parameters to look at; gradients of a weighted sum of all numbers."""
    found = []
    for packed in (True, False):
        if not packed:
            monkeypatch.setattr(module, "packs", lambda _: False)
        numbers, parameters = results()
        weights = torch.randn(numbers.shape, generator=torch.Generator().manual_seed(1))
        for parameter in parameters.values():
            parameter.grad = None
        (numbers * weights).sum().backward()
        found.append((numbers.detach(), {name: each.grad.clone() for name, each in parameters.items()}))
    (fast, fast_gradients), (slow, slow_gradients) = found
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=5e-6)
    for name, gradient in slow_gradients.items():
        torch.testing.assert_close(fast_gradients[name], gradient, rtol=1e-4, atol=1e-5, msg=name)
        assert name.endswith("k_proj.bias") or gradient.abs().max() > 1e-4, name  # a softmax does not see that bias


@pytest.mark.parametrize(("kind", "shape"), SHAPES)
@pytest.mark.parametrize("longest", [6, 1])
def test_log_probabilities_entropies_and_gradients_are_those_of_the_model(kind, shape, longest, monkeypatch):
    model = model_of(kind, **shape)
    given = sequences(longest)
    assert packs(model)

    def results():
        return torch.stack(per_token_logps(model, given, temperature=0.7)), dict(model.named_parameters())

    compare(results, learner_module, monkeypatch)


@pytest.mark.parametrize("sees_token", [True, False])
def test_numbers_of_responses_are_those_of_the_model(sees_token, monkeypatch):
    made = ValueModel(
        model_of("qwen2", num_key_value_heads=2).model, Placement(CPU, Precision()), sees_token=sees_token
    )
    with torch.no_grad():
        made.head.weight.normal_(generator=torch.Generator().manual_seed(2))
    given = sequences()
    compare(lambda: (made(given), dict(made.named_parameters())), value_module, monkeypatch)


@pytest.mark.parametrize("sees_token", [True, False])
def test_numbers_are_computed_in_bfloat16_where_the_precision_asks_for_it(sees_token):
    precision = Precision(compute="bfloat16")
    body = model_of("qwen2", num_key_value_heads=2).model
    made = ValueModel(body, Placement(CPU, precision), sees_token=sees_token)
    with torch.no_grad():
        made.head.weight.normal_(generator=torch.Generator().manual_seed(2))
        given = sequences()
        found = made(given)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = made.body(**given.model_inputs()).last_hidden_state.float()
        numbers = made.head(hidden)[..., 0]
        width = given.completion_mask.shape[1]
        expected = numbers[:, -width:] if sees_token else numbers[:, -width - 1 : -1]
        assert torch.equal(found, expected * given.completion_mask)
        made.placement = Placement(CPU, Precision())
        assert (found - made(given)).abs().max() > 1e-3


def test_each_beginning_is_read_once_and_no_padding_is():
    given = sequences()
    tokens = int(given.completion_mask.sum())
    assert len(Packing.of(given, last=True).ids) == 5 + 2 + 7 + tokens - 2 * 2 - 2
    assert len(Packing.of(given, last=False).ids) == 5 + 2 + 7 + tokens - len(given) - 2 * 1 - 2
