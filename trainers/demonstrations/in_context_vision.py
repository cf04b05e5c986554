"""The in-context model of task `vision`: Qwen2.5-VL (arXiv 2502.13923) on questions about images, CLIP for embeddings.

A prompt is a conversation in the model's own chat form: each demonstration is a turn with image and question and the
most frequent answer of its annotators, then comes the query. Images are read when they are needed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase, Qwen2_5_VLForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.utils.logging import disable_progress_bar

from trainers.demonstrations.config import VisualQuestions
from trainers.demonstrations.in_context import Pools, Scores, consecutive_splits, draw_pools, one_file
from trainers.demonstrations.vqa_accuracy import vqa_accuracy
from trainers.models import refuse_pickles

SYSTEM = "You answer questions about images with a single word or a short phrase."
IMAGE, VISION_START, VISION_END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"
TURN_END = "<|im_end|>"


@dataclass(frozen=True)
class VisualQuestion:
    """One question about an image, with the answers of its annotators."""

    id: str
    question: str
    image: Path
    answers: list[str]

    @property
    def answer(self) -> str:
        """The most frequent answer; the first of equals."""
        return Counter(self.answers).most_common(1)[0][0]


class VisionModel:
    """A frozen vision-language model with the questions."""

    def __init__(
        self,
        task: VisualQuestions,
        model: Qwen2_5_VLForConditionalGeneration,
        *,
        tokenizer: PreTrainedTokenizerBase,
        images: Qwen2VLImageProcessorPil,
        questions: Sequence[VisualQuestion],
        embedder: "ClipEmbedder",
    ) -> None:
        self.task, self.model, self.tokenizer, self.images = task, model, tokenizer, images
        self.embedder = embedder
        count = task.sizes.train + task.sizes.validation + task.sizes.test
        if len(questions) <= count:
            raise ValueError(f"data: {len(questions)} questions, task.sizes ask for {count}: no demonstration is left")
        order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(task.seed)).tolist()
        self.queries = [questions[place] for place in order[:count]]
        self.demonstrations = [questions[place] for place in order[count:]]
        pools = draw_pools(count, len(self.demonstrations), task.candidates, task.seed)
        self.data = Pools([query.id for query in self.queries], consecutive_splits(task.sizes), pools)

    def embeddings(self) -> tuple[Tensor, Tensor]:
        """Return CLIP's embeddings of image and question, side by side, each of length 1: (Q, 2 p) and (D, 2 p)."""
        return self.embedder.embed(self.queries), self.embedder.embed(self.demonstrations)

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Answer one prompt after the other; acc_score and accuracy are the VQA accuracy of the generated answer."""
        found = []
        for query, chosen in zip(queries.tolist(), demonstrations.tolist(), strict=True):
            question = self.queries[query]
            inputs = self.prompt(question, [self.demonstrations[number] for number in chosen])
            answer = self.answer(inputs)
            accuracy = vqa_accuracy(answer, question.answers, leave_one_out=self.task.leave_one_out)
            right = float(accuracy >= self.task.correct_from)
            found.append((right, accuracy, self.gold_logp(inputs, question.answer), accuracy))
        return Scores(*torch.tensor(found).T)

    def prompt(self, query: VisualQuestion, demonstrations: Sequence[VisualQuestion]) -> dict[str, Tensor]:
        """Return the model's inputs: tokens (1, T), their types, pixel patches and the grid of every image."""
        turns = [*demonstrations, query]
        pixels = self.images(images=[_open(turn.image) for turn in turns], return_tensors="pt")
        grids = pixels["image_grid_thw"]
        merged = grids.prod(1) // self.images.merge_size**2  # tokens per image
        text = f"<|im_start|>system\n{SYSTEM}{TURN_END}\n"
        for turn, count in zip(turns, merged.tolist(), strict=True):
            text += f"<|im_start|>user\n{VISION_START}{IMAGE * count}{VISION_END}{turn.question}{TURN_END}\n"
            text += "<|im_start|>assistant\n"
            text += "" if turn is query else f"{turn.answer}{TURN_END}\n"
        tokens = torch.tensor([self.tokenizer(text, add_special_tokens=False)["input_ids"]])
        image = self.tokenizer.convert_tokens_to_ids(IMAGE)
        inputs = {"input_ids": tokens, "mm_token_type_ids": (tokens == image).int(), "image_grid_thw": grids}
        inputs |= {"pixel_values": pixels["pixel_values"].to(self.model.dtype)}
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}

    @torch.no_grad()
    def answer(self, inputs: Mapping[str, Tensor]) -> str:
        """Return the greedy answer, its first line."""
        ids = inputs["input_ids"]
        end = self.tokenizer.convert_tokens_to_ids(TURN_END)
        output = self.model.generate(
            **inputs,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=self.task.max_new_tokens,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=end,
        )
        text = self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        return text.strip().split("\n")[0]

    @torch.no_grad()
    def gold_logp(self, inputs: Mapping[str, Tensor], answer: str) -> float:
        """Return the mean log-probability per token of the right answer after the prompt, nats."""
        tokens = torch.tensor([self.tokenizer(answer, add_special_tokens=False)["input_ids"]])
        tokens = tokens.to(self.model.device)
        start = inputs["input_ids"].shape[1]
        extended = dict(inputs)
        extended["input_ids"] = torch.cat([inputs["input_ids"], tokens], dim=1)
        types = inputs["mm_token_type_ids"]
        extended["mm_token_type_ids"] = torch.cat([types, types.new_zeros(tokens.shape)], dim=1)
        mask = torch.ones_like(extended["input_ids"])
        logits = self.model(**extended, attention_mask=mask, use_cache=False).logits[:, start - 1 : -1]
        return logits.float().log_softmax(-1).gather(-1, tokens[..., None]).mean().item()


class ClipEmbedder:
    """CLIP's two towers (arXiv 2103.00020)."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, images: CLIPImageProcessorPil) -> None:
        self.model, self.tokenizer, self.images = model, tokenizer, images

    @torch.no_grad()
    def embed(self, questions: Sequence[VisualQuestion]) -> Tensor:
        """Return (N, 2 p): image and question, each normalised."""
        rows = []
        longest = self.model.config.text_config.max_position_embeddings
        for question in questions:
            pixels = self.images(images=[_open(question.image)], return_tensors="pt")["pixel_values"]
            text = self.tokenizer(question.question, truncation=True, max_length=longest, return_tensors="pt")
            device = self.model.device
            seen = self.model.get_image_features(pixel_values=pixels.to(device, self.model.dtype))
            read = self.model.get_text_features(**{name: value.to(device) for name, value in text.items()})
            rows.append(torch.cat([_unit(seen), _unit(read)], dim=-1).squeeze(0).cpu())
        return torch.stack(rows)


def _unit(output: Any) -> Tensor:
    """Return features of length 1 (1, p); transformers gives them bare or as the pooled output."""
    features = output if isinstance(output, Tensor) else output.pooler_output
    return torch.nn.functional.normalize(features.float(), dim=-1)


def _open(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def read_visual_questions(path: Path, images: Path) -> list[VisualQuestion]:
    """Read JSON lines with id, question, image (relative to `images`) and answers.

    Raises ValueError with file and line where a key is missing, an image does not exist or there are no answers.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            question = VisualQuestion(str(row["id"]), row["question"], images / row["image"], list(row["answers"]))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: needs id, question, image and answers ({error!r})") from None
        if not question.answers:
            raise ValueError(f"{path}, line {number}: question {question.id} has no answers: drop the line")
        if not question.image.is_file():
            raise ValueError(f"{path}, line {number}: {question.image} does not exist: correct it, or task.images")
        found.append(question)
    return found


def load(task: VisualQuestions, assets: Mapping[str, Path], learner: Path, device: str) -> VisionModel:
    """Return the vision-language model of the asset `model` with the questions of the asset `data`."""
    disable_progress_bar()
    dtype = getattr(torch, task.dtype)
    for name in ("model", "embedder"):
        refuse_pickles(assets[name])
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(assets["model"], dtype=dtype, use_safetensors=True)
    pixels = {"min_pixels": min(56 * 56, task.max_pixels), "max_pixels": task.max_pixels}
    clip = AutoModel.from_pretrained(assets["embedder"], dtype=dtype, use_safetensors=True)
    embedder = ClipEmbedder(
        clip.to(device).eval().requires_grad_(False),
        AutoTokenizer.from_pretrained(assets["embedder"]),
        CLIPImageProcessorPil.from_pretrained(assets["embedder"]),
    )
    return VisionModel(
        task,
        model.to(device).eval().requires_grad_(False),
        tokenizer=AutoTokenizer.from_pretrained(assets["model"]),
        images=Qwen2VLImageProcessorPil.from_pretrained(assets["model"], **pixels),
        questions=read_visual_questions(one_file(assets["data"], (".jsonl", ".json")), Path(task.images)),
        embedder=embedder,
    )
