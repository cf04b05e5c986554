"""The in-context models of texts and images: scores against slow code, official accuracy, and errors in data files."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing
from transformers import CLIPConfig, CLIPModel, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from trainers.demonstrations import in_context_text, in_context_vision
from trainers.demonstrations.config import Sizes, TextQuestions, VisualQuestions
from trainers.demonstrations.vqa_accuracy import normalise, vqa_accuracy
from trainers.random_model import build_random_model, build_tokenizer


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


@pytest.mark.parametrize(("matches", "plain", "official"), [(0, 0, 0), (1, 1 / 3, 0.3), (2, 2 / 3, 0.6), (3, 1, 0.9)])
def test_vqa_accuracy_is_that_of_the_paper_and_of_the_script(matches, plain, official):
    answers = ["a Dog"] * matches + [f"other {number}" for number in range(10 - matches)]
    assert vqa_accuracy("dog!", answers) == pytest.approx(plain)
    assert vqa_accuracy("dog!", answers, leave_one_out=True) == pytest.approx(official)


def test_vqa_accuracy_of_four_matches_is_one_and_needs_annotators():
    assert vqa_accuracy("dog", ["dog"] * 4 + ["cat"] * 6, leave_one_out=True) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="without annotators"):
        vqa_accuracy("dog", [])


QUESTIONS = [
    {"question": f"What is {n}?", "options": f"A. thing {n}\nB. b\nC. some other thing", "answer": f"A. thing {n}"}
    for n in range(12)
]


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "q.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in QUESTIONS))
    model, tokenizer = build_random_model("llama", hidden=16, layers=2, heads=2, vocab=260, positions=512, seed=0)
    task = TextQuestions(name="text", sizes=Sizes(train=3, validation=2, test=2), candidates=4)
    return in_context_text.TextModel(task, model, tokenizer, path)


def test_option_scores_equal_those_of_whole_sequences(text_model):
    """The cache of the prompt, repeated for options of different lengths, changes nothing."""
    prompt, options = "Question: who?\nAnswer:", ["x", "a longer one", "mid"]
    found = text_model.option_logps(prompt, options)
    for option, mean in zip(options, found.tolist(), strict=True):
        before = text_model._tokens(prompt)
        tokens = text_model.tokenizer(f" {option}", add_special_tokens=False)["input_ids"]
        logits = text_model.model(torch.tensor([before + tokens])).logits[0, len(before) - 1 : -1].log_softmax(-1)
        slow = logits[torch.arange(len(tokens)), torch.tensor(tokens)].mean().item()
        assert mean == pytest.approx(slow, abs=1e-4)


def test_text_scores_and_pools(text_model):
    data = text_model.data
    assert data.pools.shape == (7, 4)
    assert all(len(set(pool)) == 4 for pool in data.pools.tolist())
    assert not {q.text for q in text_model.queries} & {d.text for d in text_model.demonstrations}
    scores = text_model.score(torch.tensor([0, 1, 0]), torch.tensor([[0, 1], [2, 3], [1, 0]]))
    assert set(scores.correct.tolist()) <= {0.0, 1.0}
    assert ((scores.acc_score > 0) & (scores.acc_score < 1)).all()
    assert scores.gold_logp[0] != scores.gold_logp[2]  # the order of demonstrations matters
    zero = text_model.score(torch.tensor([0]), torch.zeros(1, 0, dtype=torch.int64))
    assert zero.gold_logp[0] != scores.gold_logp[0]
    queries, demonstrations = text_model.embeddings()
    assert (queries.shape, demonstrations.shape) == ((7, 16), (5, 16))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"question": "x", "options": "A. a\nB. b", "answer": "C. c"}, r"line 2: answer 'C. c' is not one of"),
        ({"question": "x", "answer": "A. a"}, r"line 2: needs question, options and answer \(KeyError\('options'\)\)"),
    ],
)
def test_a_bad_question_is_named(tmp_path, line, problem):
    (tmp_path / "q.jsonl").write_text(f"{json.dumps(QUESTIONS[0])}\n{json.dumps(line)}\n")
    with pytest.raises(ValueError, match=rf"q\.jsonl, {problem}"):
        in_context_text.read_questions(tmp_path / "q.jsonl")


SPECIALS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]


def tiny_qwen(folder):
    """A randomly initialised Qwen2.5-VL of a few thousand parameters, with tokenizer and image processor."""
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(text, special=True) for text in SPECIALS]})
    ids = {text: tokenizer.convert_tokens_to_ids(text) for text in SPECIALS}
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "vocab_size": len(tokenizer), "max_position_embeddings": 2048}
    text |= {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil().save_pretrained(folder)


def tiny_clip(folder):
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = build_tokenizer()
    end = (tokenizer.eos_token, tokenizer.eos_token_id)  # which CLIP's tokenizer appends, and CLIP reads the text there
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    text = {**small, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "eos_token_id": end[1]}
    vision = {**small, "image_size": 28, "patch_size": 14}
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}).save_pretrained(folder)


def rows(folder):
    """Questions about two generated images: a red square, and a wide blue gradient."""
    red = np.zeros((56, 56, 3), dtype=np.uint8)
    red[..., 0] = 200
    blue = np.zeros((56, 84, 3), dtype=np.uint8)
    blue[..., 2] = np.linspace(0, 255, 84, dtype=np.uint8)
    Image.fromarray(red).save(folder / "red.png")
    Image.fromarray(blue).save(folder / "blue.png")
    return [
        {
            "id": n,
            "question": f"what colour is thing {n}?",
            "image": ("red.png", "blue.png")[n % 2],
            "answers": [("red", "blue")[n % 2]] * 6 + ["grey"] * 4,
        }
        for n in range(8)
    ]


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vision")
    for name, build in (("model", tiny_qwen), ("clip", tiny_clip)):
        build(folder / name)
    (folder / "data").mkdir()
    (folder / "data" / "q.jsonl").write_text("\n".join(json.dumps(row) for row in rows(folder)))
    task = VisualQuestions(
        name="vision",
        images=str(folder),
        sizes=Sizes(train=2, validation=1, test=1),
        candidates=3,
        max_new_tokens=3,
        dtype="float32",
    )
    assets = {"model": folder / "model", "embedder": folder / "clip", "data": folder / "data"}
    return in_context_vision.load(task, assets, folder, "cpu")


def test_a_prompt_holds_every_image_in_order_with_its_patches(vision_model):
    red, blue = (
        next(q for q in vision_model.queries + vision_model.demonstrations if q.image.name == name)
        for name in ("red.png", "blue.png")
    )
    inputs = vision_model.prompt(red, [blue])
    text = vision_model.tokenizer.decode(inputs["input_ids"][0])
    assert inputs["image_grid_thw"].tolist() == [[1, 4, 6], [1, 4, 4]]
    assert inputs["mm_token_type_ids"].sum().item() == (24 + 16) // 4
    assert text.count("<|vision_start|>") == 2
    assert text.index(blue.question) < text.index("blue<|im_end|>") < text.index(red.question)
    assert text.endswith("<|im_start|>assistant\n")  # the query's answer is not in its prompt
    assert "red<|im_end|>" not in text


def test_the_images_reach_the_answer(vision_model):
    query, other = vision_model.queries[0], vision_model.demonstrations[0]
    swapped = in_context_vision.VisualQuestion(
        query.id,
        query.question,
        query.image.with_name({"red.png": "blue.png"}.get(query.image.name, "red.png")),
        query.answers,
    )
    one, two = (vision_model.gold_logp(vision_model.prompt(q, [other]), "red") for q in (query, swapped))
    assert one != two


def test_gold_logps_are_those_of_the_tokens_one_by_one(vision_model):
    inputs = vision_model.prompt(vision_model.queries[0], [])
    tokens = vision_model.tokenizer("re", add_special_tokens=False)["input_ids"]
    total, extended = 0.0, dict(inputs)
    for token in tokens:
        mask = torch.ones_like(extended["input_ids"])
        with torch.no_grad():
            logits = vision_model.model(**extended, attention_mask=mask, use_cache=False).logits[0, -1]
        total += logits.log_softmax(-1)[token].item()
        extended["input_ids"] = torch.cat([extended["input_ids"], torch.tensor([[token]])], dim=1)
        zero = torch.zeros(1, 1, dtype=torch.int32)
        extended["mm_token_type_ids"] = torch.cat([extended["mm_token_type_ids"], zero], dim=1)
    assert vision_model.gold_logp(inputs, "re") == pytest.approx(total / len(tokens), abs=1e-4)


def test_vision_scores_use_the_generated_answer(vision_model, monkeypatch):
    query = torch.tensor([0, 0])
    chosen = torch.tensor([[0, 1], [1, 0]])
    scores = vision_model.score(query, chosen)
    assert scores.accuracy.tolist() == scores.acc_score.tolist()
    right = vision_model.queries[0].answer
    monkeypatch.setattr(vision_model, "answer", lambda inputs: f"The {right}.")
    scores = vision_model.score(query, chosen)
    assert scores.correct.tolist() == scores.accuracy.tolist() == [1.0, 1.0]
    monkeypatch.setattr(vision_model, "answer", lambda inputs: "green")
    assert vision_model.score(query, chosen).correct.tolist() == [0.0, 0.0]


def test_clip_embeddings_hold_image_and_question(vision_model):
    queries, demonstrations = vision_model.embeddings()
    assert (queries.shape, demonstrations.shape) == ((4, 16), (4, 16))
    torch.testing.assert_close(queries[:, :8].norm(dim=1), torch.ones(4))
    torch.testing.assert_close(queries[:, 8:].norm(dim=1), torch.ones(4))
    everything = torch.cat([queries, demonstrations])
    questions = vision_model.queries + vision_model.demonstrations
    red = [place for place, question in enumerate(questions) if question.image.name == "red.png"]
    torch.testing.assert_close(everything[red[0], :8], everything[red[1], :8])  # the same image
    assert not torch.allclose(everything[red[0], 8:], everything[red[1], 8:])  # another question


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"image": "none.png"}, "does not exist"), ({"answers": []}, "has no answers"), ({"id": None}, "")],
)
def test_a_bad_visual_question_is_named(tmp_path, change, problem):
    good = rows(tmp_path)[0]
    bad = {**good, **change} if change != {"id": None} else {k: v for k, v in good.items() if k != "id"}
    (tmp_path / "q.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    with pytest.raises(ValueError, match=rf"q\.jsonl, line 2: .*{problem}"):
        in_context_vision.read_visual_questions(tmp_path / "q.jsonl", tmp_path)
