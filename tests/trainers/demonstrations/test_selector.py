"""The pointer selector and the proposals: nothing is chosen twice, probabilities are those of the definition."""

import itertools
import math

import pytest
import torch

from trainers.demonstrations.candidates import beam_search, propose, sample, similarities
from trainers.demonstrations.config import Proposals, Selector
from trainers.demonstrations.rce import free_candidates
from trainers.demonstrations.selector import build_selector, sequence_logps


def drawn(seed, rows=4, candidates=6, d=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, d, generator=generator), torch.randn(rows, candidates, d, generator=generator)


def selector(layers=1, seed=0, d=5):
    return build_selector(Selector(hidden=8, layers=layers, heads=2), d, seed)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_probabilities_sum_to_one_and_are_zero_for_what_was_chosen(layers):
    query, pool = drawn(1)
    pointers = torch.stack([torch.stack([torch.randperm(6)[:4] for _ in range(3)]) for _ in range(4)])
    logps = selector(layers)(query, pool, pointers)
    assert logps.exp().sum(-1).flatten().tolist() == pytest.approx([1.0] * 48, abs=1e-5)
    free = free_candidates(pointers, 6)
    assert (logps.exp()[~free] == 0).all()
    assert (logps.exp()[free] > 0).all()
    assert free.sum(-1)[0, 0].tolist() == [6, 5, 4, 3]


def test_selection_is_the_most_probable_choice_of_every_step_and_prefixes_agree():
    query, pool = drawn(2)
    model = selector()
    chosen = model.select(query, pool, 4)
    logps = model(query, pool, chosen[:, None])
    assert logps.argmax(-1).squeeze(1).tolist() == chosen.tolist()
    assert model.select(query, pool, 2).tolist() == chosen[:, :2].tolist()
    best = sequence_logps(logps, chosen[:, None]).squeeze(1)
    torch.testing.assert_close(best, logps.amax(-1).squeeze(1))


def one_step_at_a_time(model, query, candidates, pointers):
    """Every step of every sequence on its own, in float64: (B, N, S, K), from the weights of the model."""
    result = torch.zeros(*pointers.shape, candidates.shape[1], dtype=torch.float64)
    for row, sequence in itertools.product(*map(range, pointers.shape[:2])):
        mine = query[row : row + 1], candidates[row : row + 1]
        state, encoded, _ = model.encode(*mine)
        keys, asked = (
            projection(each)
            for projection, each in ((model.candidate_projection, mine[1]), (model.query_projection, mine[0]))
        )
        similarity = torch.nn.functional.cosine_similarity(asked[:, None], keys, dim=-1)
        given = model.first_input[None]
        for step, choice in enumerate(pointers[row, sequence].tolist()):
            state = model.step_context(given, state)
            logits = (encoded[0] @ model.pointer(state)[0]) / model.hidden**0.5 + model.similarity_scale * similarity[0]
            logits[pointers[row, sequence, :step]] = -1e9
            result[row, sequence, step] = logits.log_softmax(-1)
            given = encoded[:, choice]
    return result


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("shots", [1, 2, 4])
def test_all_steps_at_once_are_what_one_step_after_the_other_is(shots, layers):
    """Log-probabilities and the gradients of all parameters; a sequence at a time."""
    generator = torch.Generator().manual_seed(6)
    query, pool = (each.double() for each in drawn(6, rows=3))
    pointers = torch.rand(3, 2, 6, generator=generator).argsort(-1)[..., :shots]
    weights = torch.randn(3, 2, shots, generator=generator).double()
    found = {}
    for name in ("fast", "slow"):
        model = selector(layers).double()
        with torch.no_grad():
            model.first_input.normal_(generator=torch.Generator().manual_seed(7))
        logps = model(query, pool, pointers) if name == "fast" else one_step_at_a_time(model, query, pool, pointers)
        (sequence_logps(logps, pointers) * weights).sum().backward()
        found[name] = {"logps": logps.detach()} | {key: value.grad for key, value in model.named_parameters()}
    for name, value in found["slow"].items():
        torch.testing.assert_close(found["fast"][name], value, msg=name)
        assert value.abs().max() > 0, name


@pytest.mark.parametrize("learns", [True, False])
def test_a_loaded_selector_learns_on_devices_too(learns, monkeypatch):
    """In evaluation mode, as it is loaded, cuDNN has no backward pass for a recurrence."""
    train, original = [], torch.gru
    monkeypatch.setattr(torch, "gru", lambda *given: train.append(given[6]) or original(*given))
    query, pool = drawn(8)
    with torch.set_grad_enabled(learns):
        selector().eval()(query, pool, torch.tensor([[[0, 1, 2]]]).expand(len(query), 1, 3))
    assert train == [learns]


def brute_force(logits, shots):
    """All sequences with their probability under drawing without replacement."""
    weights = logits.exp().tolist()
    result = {}
    for sequence in itertools.permutations(range(len(weights)), shots):
        probability, left = 1.0, sum(weights)
        for index in sequence:
            probability *= weights[index] / left
            left -= weights[index]
        result[sequence] = probability
    return result


def test_the_beam_finds_the_most_probable_sequences():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    everything = beam_search(logits, 3, 60)  # as wide as there are sequences: exact
    for row in range(3):
        expected = brute_force(logits[row], 3)
        order = sorted(expected, key=expected.get, reverse=True)
        assert [tuple(s) for s in everything[row].tolist()] == order
    assert torch.equal(beam_search(logits, 3, 1)[:, 0], logits.argsort(1, descending=True)[:, :3])
    with pytest.raises(ValueError, match=r"proposals\.beam 61 exceeds 60, the number of sequences"):
        beam_search(logits, 3, 61)


def test_samples_have_the_probabilities_of_drawing_without_replacement():
    logits = torch.tensor([1.0, 0.0, -1.0])
    drawn = sample(logits.expand(60_000, 3), 2, torch.Generator().manual_seed(0)).tolist()
    for sequence, probability in brute_force(logits, 2).items():
        share = sum(tuple(d) == sequence for d in drawn) / len(drawn)
        assert share == pytest.approx(probability, abs=5 * math.sqrt(probability * (1 - probability) / len(drawn)))


def test_proposals_have_the_declared_methods_and_never_repeat():
    query, pool = drawn(6, rows=20, candidates=9)
    proposals = Proposals(beam=2, temperatures=[1.0, 8.0], random=3)
    pointers, methods = propose(similarities(query, pool), 4, proposals, seed=0)
    assert methods == ["beam", "beam", "sample_1", "sample_8", "random", "random", "random"]
    assert pointers.shape == (20, 7, 4)
    assert (pointers.sort(-1).values.diff(dim=-1) > 0).all()
    again, _ = propose(similarities(query, pool), 4, proposals, seed=0)
    assert torch.equal(again, pointers)
