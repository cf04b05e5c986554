"""Models that answer in context: of texts, of images and texts in six families, with the official files of OK-VQA."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.smolvlm import processing_smolvlm

from tests.trainers.demonstrations import tiny_image_text
from tests.trainers.demonstrations.helpers import run, variant
from trainers.demonstrations import in_context_text, in_context_vision, vqa_data
from trainers.demonstrations.config import DemonstrationsConfig, Sizes, TextQuestions, VisualQuestions
from trainers.demonstrations.image_text import load_image_text
from trainers.demonstrations.prepared import read_candidates
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


RED, BLUE = "COCO_train2014_000000000001.jpg", "COCO_train2014_000000000002.jpg"


def draw(folder, split="train2014"):
    """Two images: a red square, and a wide blue gradient."""
    red = np.zeros((56, 56, 3), dtype=np.uint8)
    red[..., 0] = 200
    blue = np.zeros((56, 84, 3), dtype=np.uint8)
    blue[..., 2] = np.linspace(0, 255, 84, dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in ((1, red), (2, blue)):
        Image.fromarray(pixels).save(folder / f"COCO_{split}_{number:012d}.jpg", quality=95)


def official(folder, split, first, count):
    """The two files of a split as OK-VQA publishes them: question ids fall, images alternate."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = range(first + count, first, -1)
    questions = [{"image_id": n % 2 + 1, "question": f"what colour is {n}?", "question_id": n} for n in ids]
    answers = [
        [{"answer": ("red", "blue")[n % 2], "raw_answer": "x", "answer_id": place + 1} for place in range(6)]
        + [{"answer": "grey", "raw_answer": "x", "answer_id": place + 7} for place in range(4)]
        for n in ids
    ]
    annotations = [
        {"image_id": n % 2 + 1, "question_id": n, "answer_type": "other", "answers": given}
        for n, given in zip(ids, answers, strict=True)
    ]
    common = {"info": {}, "license": {}, "data_type": "mscoco", "data_subtype": split}
    (folder / f"OpenEnded_mscoco_{split}_questions.json").write_text(
        json.dumps({**common, "task_type": "Open-Ended", "questions": questions})
    )
    (folder / f"mscoco_{split}_annotations.json").write_text(
        json.dumps({**common, "annotations": list(reversed(annotations))})
    )


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    """The official files with images in the folders of their splits, and a CLIP."""
    folder = tmp_path_factory.mktemp("okvqa")
    for split, first, count in (("train2014", 100, 9), ("val2014", 500, 4)):
        draw(folder / "images" / split, split)
        official(folder / "data", split, first, count)
    tiny_image_text.build_clip(folder / "clip")
    return folder


def task(assets, **changes):
    values = {"sizes": Sizes(train=3, validation=2, test=3), "candidates": 3, "max_new_tokens": 3, "dtype": "float32"}
    return VisualQuestions(name="vision", images=str(assets / "images"), **(values | changes))


@pytest.fixture(scope="module", params=tiny_image_text.FAMILIES)
def vision_model(request, assets):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "smolvlm":  # its processor asks for num2words, for videos only
            patch.setattr(processing_smolvlm, "num2words", processing_smolvlm.num2words or str)
        folder = tiny_image_text.build(assets / request.param, request.param)
        folders = {"model": folder, "embedder": assets / "clip", "data": assets / "data"}
        yield in_context_vision.load(task(assets), folders, assets, "cpu")


def test_a_prompt_holds_images_questions_and_answers_in_order(vision_model):
    shown, query = vision_model.questions[0], vision_model.questions[1]
    (chat,) = vision_model.chats([query], torch.tensor([[0]]))
    text = vision_model.model.prompt([(turn.question, turn.answer) for turn in chat])
    assert text.count("You answer questions about images") == 1
    assert text.index(shown.question) < text.index(f"{shown.answer}") < text.index(query.question)
    assert query.answer not in text[text.index(query.question) :]  # the query's answer is not in its prompt
    inputs = vision_model.model.inputs([chat])
    assert inputs["input_ids"].shape[0] == 1
    starts = vision_model.model.tokenizer.decode(inputs["input_ids"][0])
    assert not starts.startswith("<s><s>")


def test_a_batch_gives_what_its_prompts_give_one_at_a_time(vision_model):
    """Prompts of different lengths, with one to three images of different sizes."""
    items = [vision_model.questions[number] for number in (3, 4, 5)]
    chats = [
        *vision_model.chats(items[:1], torch.tensor([[0, 1]])),
        *vision_model.chats(items[1:2], torch.zeros(1, 0, dtype=torch.int64)),
        *vision_model.chats(items[2:], torch.tensor([[2]])),
    ]
    golds = ["red", "a much longer answer", "bl"]
    together = vision_model.model.inputs(chats)
    answers, logps = vision_model.model.answers(together, 4), vision_model.model.gold_logps(together, golds)
    for row, (chat, gold) in enumerate(zip(chats, golds, strict=True)):
        alone = vision_model.model.inputs([chat])
        assert vision_model.model.answers(alone, 4) == [answers[row]]
        torch.testing.assert_close(vision_model.model.gold_logps(alone, [gold])[0], logps[row], atol=1e-5, rtol=1e-5)
    assert logps.unique().numel() == 3


def test_gold_logps_are_those_of_the_tokens_one_by_one(vision_model):
    model = vision_model.model
    (chat,) = vision_model.chats([vision_model.questions[1]], torch.zeros(1, 0, dtype=torch.int64))
    inputs = model.inputs([chat])
    tokens = model.tokenizer(model._gold("re")[0], add_special_tokens=False)["input_ids"]
    total, extended = 0.0, dict(inputs)
    for token in tokens:
        with torch.no_grad():
            logits = model.model(**extended, use_cache=False).logits[0, -1]
        total += logits.log_softmax(-1)[token].item()
        for name, new in (("input_ids", token), ("attention_mask", 1), ("mm_token_type_ids", 0)):
            if name in extended:
                more = torch.full((1, 1), new, dtype=extended[name].dtype)
                extended[name] = torch.cat([extended[name], more], dim=1)
    assert model.gold_logps(inputs, ["re"]).item() == pytest.approx(total / len(tokens), abs=1e-4)


@pytest.fixture(scope="module")
def one_model(assets):
    """A model of one family, for what does not depend on it."""
    folder = tiny_image_text.build(assets / "one", "qwen2_5_vl")
    folders = {"model": folder, "embedder": assets / "clip", "data": assets / "data"}
    return in_context_vision.load(task(assets), folders, assets, "cpu")


def test_scores_use_the_generated_answers(one_model, monkeypatch):
    queries, chosen = torch.tensor([1, 2]), torch.tensor([[3, 4], [4, 3]])
    scores = one_model.score(queries, chosen)
    assert scores.accuracy.tolist() == scores.acc_score.tolist()
    right = [one_model.questions[number].answer for number in (1, 2)]
    monkeypatch.setattr(one_model.model, "answers", lambda inputs, longest: [f"The {right[0]}.", "green"])
    scores = one_model.score(queries, chosen)
    assert scores.correct.tolist() == scores.accuracy.tolist() == [1.0, 0.0]
    assert scores.answers == [f"The {right[0]}.", "green"]
    question = one_model.questions[1]
    assert one_model.in_words([1]) == [(f"{question.question}\n(image {question.image.name})", question.answer)]
    assert one_model.right_answers([1])[0].startswith(question.answer)


def test_official_files_keep_their_order_and_the_evaluation_split_is_not_reshuffled(one_model):
    division = one_model.divide()
    names = [one_model.names[item] for item in division.queries]
    tests = [names[place] for place in division.splits["test"]]
    assert tests == ["504", "503", "502"]  # the first three of the file, in its order
    others = {names[place] for split in ("train", "validation") for place in division.splits[split]}
    demonstrations = {one_model.names[item] for item in division.demonstrations}
    assert others | demonstrations == {str(number) for number in range(101, 110)}
    assert not others & demonstrations
    question = one_model.questions[one_model.names.index("103")]
    assert question.answers == ["blue"] * 6 + ["grey"] * 4
    assert question.image.name == BLUE


TRAIN, GIVEN = "OpenEnded_mscoco_train2014_questions.json", "mscoco_train2014_annotations.json"


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (
            GIVEN,
            lambda c: {**c, "annotations": [{**row, "answers": []} for row in c["annotations"]]},
            "the annotation has no answers",
        ),
        (TRAIN, lambda c: {**c, "questions": c["questions"] * 2}, r"train2014_questions\.json, question 109: .* twice"),
        (
            GIVEN,
            lambda c: {**c, "annotations": c["annotations"][1:]},
            r"question 101: .* missing in mscoco_train2014_annotations",
        ),
        (GIVEN, lambda c: {"rows": []}, r"train2014_annotations\.json: 'annotations' must be a list"),
        (
            TRAIN,
            lambda c: {**c, "questions": [{**c["questions"][0], "image_id": 77}]},
            r"question 109: COCO_train2014_000000000077\.jpg is neither in",
        ),
    ],
)
def test_a_wrong_official_file_is_named(assets, tmp_path, name, change, problem):
    for path in (assets / "data").iterdir():
        content = json.loads(path.read_text())
        (tmp_path / path.name).write_text(json.dumps(change(content) if path.name == name else content))
    with pytest.raises(ValueError, match=problem):
        vqa_data.read_data(tmp_path, assets / "images")


def test_a_model_without_template_is_refused(assets, tmp_path):
    folder = tiny_image_text.build(tmp_path / "bare", "llava")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match=r"chat template is missing; add chat_template\.jinja"):
        load_image_text(folder, dtype=torch.float32, device="cpu", system="")


def test_a_whole_run_from_official_files_to_accuracy(assets, tmp_path):
    asset = {"kind": "model", "sources": [{"source": "path", "path": "x"}]}
    values = {"task": task(assets).model_dump(), "model": asset, "embedder": asset, "data": {**asset, "kind": "vqa"}}
    values |= {"shots": 2, "score_batch": 2, "selector": {"hidden": 8, "heads": 2}, "rce": {"epochs": 1}}
    values |= {"proposals": {"beam": 1, "temperatures": [], "random": 2}, "grpo": {"epochs": 1}}
    settings = DemonstrationsConfig.model_validate(values)
    folders = {name: tmp_path / name for name in ("model", "embedder", "data", "learner")}
    for name, source in (("model", "one"), ("embedder", "clip"), ("data", "data")):
        folders[name].mkdir()
        (folders[name] / "files").symlink_to(assets / source)
    tiny_image_text.build(assets / "one", "qwen2_5_vl")
    folders["learner"].mkdir()
    for name in ("embed", "candidates"):
        folders[name], _ = run(name, settings, dict(folders), tmp_path / name)
    data = read_candidates(folders["candidates"])
    assert data.pointers.shape == (3, 3, 2)
    assert not data.info_score.isnan().any()
    found, metrics = variant(tmp_path, folders, settings)
    assert set(metrics) >= {"selected/1/accuracy", "selected/2/accuracy", "selected/mean/gold_logp"}
    assert (found["evaluate"] / "items.parquet").exists()
