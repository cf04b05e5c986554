"""The in-context model of task `vision`: an image-text model on questions about images, with CLIP embeddings.

A prompt is a chat in the model's template. Each demonstration is a turn with an image, a question and the annotators'
most frequent answer; the query is the last turn. Images are read when they are needed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.utils.logging import disable_progress_bar

from trainers.demonstrations.config import VisualQuestions
from trainers.demonstrations.image_text import ImageTextModel, Turn, load_image_text
from trainers.demonstrations.in_context import Division, Scores, divide_questions
from trainers.demonstrations.vqa_data import VisualData, VisualQuestion, read_data, vqa_accuracy
from trainers.models.causal import refuse_pickles


class VisionModel:
    """In-context model of the task `vision`: a frozen image-text model and the questions."""

    def __init__(
        self, task: VisualQuestions, model: ImageTextModel, data: VisualData, embedder: "ClipEmbedder"
    ) -> None:
        self.task, self.model, self.embedder, self.data = task, model, embedder, data
        self.questions = [*data.training, *data.evaluation]
        self.names = [question.id for question in self.questions]
        self.clusters = [question.image.name for question in self.questions]

    def divide(self) -> Division:
        """Return queries and demonstrations; the test queries are the first questions of the evaluation split."""
        task, first = self.task, len(self.data.training)
        evaluation = range(first, len(self.questions))
        return divide_questions(range(first), evaluation, sizes=task.sizes, candidates=task.candidates, seed=task.seed)

    def embed(self, items: Tensor) -> Tensor:
        """Return the embeddings (B, 2 * p): CLIP's embeddings of image and question, normalised and concatenated."""
        questions = [self.questions[item] for item in items.tolist()]
        return self.embedder.embed([self._open(question) for question in questions], [q.question for q in questions])

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Return the scores of the answers; acc_score and accuracy are the VQA accuracy of the generated answer."""
        questions = [self.questions[item] for item in queries.tolist()]
        inputs = self.model.inputs(self.chats(questions, demonstrations))
        answers = self.model.answers(inputs, self.task.max_new_tokens)
        pairs = zip(answers, questions, strict=True)
        accuracy = torch.tensor([vqa_accuracy(answer, question.answers) for answer, question in pairs])
        right = (accuracy >= self.task.correct_from).float()
        gold_logps = self.model.gold_logps(inputs, [question.answer for question in questions])
        return Scores(right, accuracy, gold_logps, accuracy, answers)

    def in_words(self, items: Sequence[int]) -> list[tuple[str, str]]:
        """Return each question with the name of its image, and the annotators' most frequent answer."""
        questions = [self.questions[item] for item in items]
        return [(f"{question.question}\n(image {question.image.name})", question.answer) for question in questions]

    def right_answers(self, queries: Sequence[int]) -> list[str]:
        """Return the annotators' answers to each query with their counts, the most frequent first."""
        counts = [Counter(self.questions[item].answers).most_common() for item in queries]
        return [", ".join(f"{word} ({count})" if count > 1 else word for word, count in answers) for answers in counts]

    def chats(self, queries: Sequence[VisualQuestion], demonstrations: Tensor) -> list[list[Turn]]:
        """Return the turns of each prompt: demonstrations (B, S), then the query. queries: B questions."""
        chats = []
        for query, chosen in zip(queries, demonstrations.tolist(), strict=True):
            shown = [self.questions[item] for item in chosen]
            turns = [Turn(self._open(question), question.question, question.answer) for question in shown]
            chats.append([*turns, Turn(self._open(query), query.question)])
        return chats

    def _open(self, question: VisualQuestion) -> Image.Image:
        """Return the question's image, which is scaled down if it has more than `max_pixels`."""
        with Image.open(question.image) as opened:
            image = opened.convert("RGB")
        scale = (self.task.max_pixels / (image.width * image.height)) ** 0.5
        if scale >= 1:
            return image
        return image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))


class ClipEmbedder:
    """CLIP's encoders of images and of texts (arXiv 2103.00020)."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, images: CLIPImageProcessorPil) -> None:
        self.model, self.tokenizer, self.images = model, tokenizer, images

    @torch.no_grad()
    def embed(self, images: Sequence[Image.Image], texts: Sequence[str]) -> Tensor:
        """Return the embeddings of B images and B texts, each normalised, concatenated to (B, 2 * p)."""
        longest, device = self.model.config.text_config.max_position_embeddings, self.model.device
        pixels = self.images(images=list(images), return_tensors="pt")["pixel_values"]
        read = self.tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
        image = self.model.get_image_features(pixel_values=pixels.to(device, self.model.dtype))
        text = self.model.get_text_features(**{name: value.to(device) for name, value in read.items()})
        return torch.cat([_unit(image), _unit(text)], dim=-1).cpu()


def _unit(output: Any) -> Tensor:
    """Return the normalised features (B, p) in an output of CLIP, which is a tensor or an object that holds them."""
    features = output if isinstance(output, Tensor) else output.pooler_output
    return torch.nn.functional.normalize(features.float(), dim=-1)


def load(task: VisualQuestions, assets: Mapping[str, Path], learner: Path, device: str) -> VisionModel:
    """Return the in-context model, built from the assets `model`, `embedder` (CLIP) and `data` (questions)."""
    disable_progress_bar()
    dtype = getattr(torch, task.dtype)
    data = read_data(assets["data"], Path(task.images))
    refuse_pickles(assets["embedder"])
    model = load_image_text(assets["model"], dtype=dtype, device=device, system=task.instruction)
    clip = AutoModel.from_pretrained(assets["embedder"], dtype=dtype, use_safetensors=True)
    embedder = ClipEmbedder(
        clip.to(device).eval().requires_grad_(False),
        AutoTokenizer.from_pretrained(assets["embedder"]),
        CLIPImageProcessorPil.from_pretrained(assets["embedder"]),
    )
    return VisionModel(task, model, data, embedder)
