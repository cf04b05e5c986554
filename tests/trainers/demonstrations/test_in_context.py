"""The VQA accuracy against the official script, and the in-context model of texts against slow code."""

import json

import pytest
import torch

from trainers.demonstrations import in_context_text
from trainers.demonstrations.config import Sizes, TextQuestions
from trainers.demonstrations.vqa_data import normalise, vqa_accuracy
from trainers.models.random_model import build_random_model


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  Dog.", "dog"),
        ("two cats, and a dog", "2 cats and dog"),
        ("dont know", "don't know"),
        ("couldntve", "couldn't've"),
        ("it's", "it's"),
        ("its", "its"),  # a word of its own
        ("1,000", "1000"),
        ("3.5 miles", "3.5 miles"),
        ("1980.", "1980"),  # the official pattern keeps a point only before a digit
        ("U.S.", "us"),
        ("black/white", "black white"),  # a mark between letters becomes a space
        ("black / white", "black white"),
        ("what?", "what"),
        ("none", "0"),
        ("left\nright", "left right"),
    ],
)
def test_answers_are_normalised_as_in_the_official_evaluation(answer, expected):
    assert normalise(answer) == expected


@pytest.mark.parametrize(("matches", "expected"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_vqa_accuracy_is_that_of_the_official_script(matches, expected):
    answers = ["a Dog"] * matches + [f"other {number}" for number in range(10 - matches)]
    assert vqa_accuracy("dog!", answers) == pytest.approx(expected)


QUESTIONS = [
    {"question": f"What is {n}?", "options": f"A. thing {n}\nB. b\nC. some other thing", "answer": f"A. thing {n}"}
    for n in range(12)
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def text_model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "q.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in QUESTIONS))
    model, tokenizer = build_random_model(request.param, hidden=16, layers=2, heads=2, vocab=260, positions=512, seed=0)
    task = TextQuestions(name="text", sizes=Sizes(train=3, validation=2, test=2), candidates=4)
    return in_context_text.TextModel(task, model, tokenizer, path)


def test_option_scores_of_a_batch_equal_those_of_whole_sequences(text_model):
    """Neither padded prompts nor the cache, repeated for options of different lengths, change anything."""
    prompts = ["Question: who?\nAnswer:", "Question: and what is much longer than the first?\nAnswer:"]
    options = [["x", "a longer one", "mid"], ["yes", "no"]]
    for prompt, texts, found in zip(prompts, options, text_model.option_logps(prompts, options), strict=True):
        for option, mean in zip(texts, found.tolist(), strict=True):
            before = text_model._tokens(prompt)
            tokens = text_model.tokenizer(f" {option}", add_special_tokens=False)["input_ids"]
            logits = text_model.model(torch.tensor([before + tokens])).logits[0, len(before) - 1 : -1].log_softmax(-1)
            slow = logits[torch.arange(len(tokens)), torch.tensor(tokens)].mean().item()
            assert mean == pytest.approx(slow, abs=1e-4)


def test_a_batch_of_questions_gives_what_they_give_one_at_a_time(text_model):
    queries, chosen = torch.tensor([0, 3, 8]), torch.tensor([[1, 2], [5, 4], [0, 7]])
    together = text_model.score(queries, chosen)
    alone = [text_model.score(queries[row : row + 1], chosen[row : row + 1]) for row in range(3)]
    for field in ("correct", "acc_score", "gold_logp", "accuracy"):
        one_by_one = torch.cat([getattr(scores, field) for scores in alone])
        torch.testing.assert_close(getattr(together, field), one_by_one, atol=1e-5, rtol=1e-5)
    embedded = torch.cat([text_model.embed(queries[row : row + 1]) for row in range(3)])
    torch.testing.assert_close(text_model.embed(queries), embedded, atol=1e-5, rtol=1e-5)


def test_text_scores_and_pools(text_model):
    division = text_model.divide()
    assert division.pools.shape == (7, 4)
    assert all(len(set(pool)) == 4 for pool in division.pools.tolist())
    assert sorted([*division.queries, *division.demonstrations]) == list(range(12))
    scores = text_model.score(torch.tensor([0, 1, 0]), torch.tensor([[2, 3], [4, 5], [3, 2]]))
    assert set(scores.correct.tolist()) <= {0.0, 1.0}
    assert [
        answer == right for answer, right in zip(scores.answers, text_model.right_answers([0, 1, 0]), strict=True)
    ] == [bool(value) for value in scores.correct]
    question, answer = text_model.in_words([2])[0]
    assert question.startswith(text_model.questions[2].text)
    assert f"- {answer}" in question
    assert ((scores.acc_score > 0) & (scores.acc_score < 1)).all()
    assert scores.gold_logp[0] != scores.gold_logp[2]  # the order of demonstrations matters
    zero = text_model.score(torch.tensor([0]), torch.zeros(1, 0, dtype=torch.int64))
    assert zero.gold_logp[0] != scores.gold_logp[0]
    assert text_model.embed(torch.arange(7)).shape == (7, 16)
