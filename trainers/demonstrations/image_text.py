"""Image-text models of transformers: prompts in their chat template, generated answers and log-probabilities.

The code works for any model family, because the model's processor encodes images and its chat template encodes turns.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from PIL import Image
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import is_torchvision_available

from trainers.models.causal import refuse_pickles


@dataclass(frozen=True)
class Turn:
    """Question about an image, with its answer, which is empty in the last turn of a prompt."""

    image: Image.Image
    question: str
    answer: str = ""


class ImageTextModel:
    """Frozen image-text model with its processor."""

    def __init__(self, model: Any, processor: Any, *, system: str) -> None:
        self.model, self.processor, self.system = model, processor, system
        self.tokenizer = processor.tokenizer
        self.tokenizer.padding_side = "left"  # all prompts of a batch must end at the same position
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.system_turn = bool(system) and self._takes_system()
        self.ends = self._ends()
        self.keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    def _takes_system(self) -> bool:
        """Return whether the template renders a system message; otherwise its text precedes the first question."""
        messages = self._messages([("?", "")], system_turn=True)
        try:
            return self.system in self._rendered(messages, open_answer=True)
        except (TemplateError, TypeError):
            return False

    def _ends(self) -> list[int]:
        """Return the tokens that end an answer: the model's end tokens, and a special token of the template if any."""
        ends = self.model.generation_config.eos_token_id
        tokens = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}
        _, rest = self._gold("answer")
        after = self.tokenizer(rest.lstrip(), add_special_tokens=False)["input_ids"][:1]
        tokens |= set(after) & set(self.tokenizer.all_special_ids)
        return sorted(number for number in tokens if number is not None)

    def _messages(self, turns: Sequence[tuple[str, str]], *, system_turn: bool) -> list[dict[str, Any]]:
        """Return (question, answer) turns as a chat, without the empty answers."""
        messages: list[dict[str, Any]] = []
        if system_turn:
            messages.append({"role": "system", "content": [{"type": "text", "text": self.system}]})
        for number, (question, answer) in enumerate(turns):
            first = number == 0 and self.system and not system_turn
            text = f"{self.system}\n{question}" if first else question
            messages.append({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]})
            if answer:
                messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        return messages

    def prompt(self, turns: Sequence[tuple[str, str]]) -> str:
        """Return the text of a chat up to the start of the answer to the last question."""
        return self._rendered(self._messages(turns, system_turn=self.system_turn), open_answer=True)

    def _rendered(self, messages: Sequence[Mapping[str, Any]], *, open_answer: bool) -> str:
        template = self.processor.chat_template
        return self.tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=open_answer, tokenize=False
        )

    def _gold(self, answer: str) -> tuple[str, str]:
        """Return an answer as rendered after the prompt, with leading spaces, and the template's text that follows."""
        messages = self._messages([("?", answer)], system_turn=self.system_turn)
        rendered = self._rendered(messages, open_answer=False)
        start = self.prompt([("?", "")])
        if not rendered.startswith(start) or answer not in rendered[len(start) :]:
            return answer, ""
        rest = rendered[len(start) :]
        end = rest.index(answer) + len(answer)
        return rest[:end], rest[end:]

    def inputs(self, chats: Sequence[Sequence[Turn]]) -> dict[str, Tensor]:
        """Return the model's inputs for a batch of chats, each of which ends in a question; padding is on the left."""
        texts = [self.prompt([(turn.question, turn.answer) for turn in chat]) for chat in chats]
        images = [[turn.image for turn in chat] for chat in chats]
        # If the template writes the first token itself, the tokenizer must not add another one.
        bos = self.tokenizer.bos_token
        special = not (bos and texts[0].startswith(bos))
        made = self.processor(text=texts, images=images, padding=True, add_special_tokens=special, return_tensors="pt")
        device, dtype = self.model.device, self.model.dtype
        return {
            name: value.to(device, dtype if value.is_floating_point() else value.dtype) for name, value in made.items()
        }

    @torch.no_grad()
    def answers(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> list[str]:
        """Return the first line of each greedy answer to a batch of inputs."""
        output = self.model.generate(
            **inputs,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=self.ends,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        texts = self.tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [text.strip().split("\n")[0] for text in texts]

    @torch.no_grad()
    def gold_logps(self, inputs: Mapping[str, Tensor], answers: Sequence[str]) -> Tensor:
        """Return the mean log-probability per token (B,), in nats, of B answers, each after its prompt in `inputs`."""
        rows = [self.tokenizer(self._gold(text)[0], add_special_tokens=False)["input_ids"] for text in answers]
        longest = max(map(len, rows))
        device, pad = self.model.device, self.tokenizer.pad_token_id
        tokens = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows], device=device)
        kept = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
        start = inputs["input_ids"].shape[1]
        extended = {name: _extended(name, value, tokens, kept, start) for name, value in inputs.items()}
        keep = {"logits_to_keep": longest + 1} if self.keeps else {}  # logits of all tokens would need much memory
        logits = self.model(**extended, use_cache=False, **keep).logits[:, -longest - 1 : -1]
        logps = logits.float().log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)
        return ((logps * kept).sum(1) / kept.sum(1)).cpu()


def _extended(name: str, value: Tensor, tokens: Tensor, kept: Tensor, start: int) -> Tensor:
    """Return the model input `name` of prompts, which have `start` tokens, extended for the answers' tokens."""
    if name == "input_ids":
        return torch.cat([value, tokens], dim=1)
    if name == "attention_mask":
        return torch.cat([value, kept.to(value.dtype)], dim=1)
    if value.ndim >= 2 and value.shape[:2] == (len(tokens), start) and not value.is_floating_point():
        more = value[:, -1:].expand(-1, tokens.shape[1], *value.shape[2:])  # token types; answers have that of text
        return torch.cat([value, more], dim=1)
    return value


def load_image_text(folder: Path, *, dtype: torch.dtype, device: str, system: str) -> ImageTextModel:
    """Return the frozen image-text model in a folder.

    Raises ValueError if its weights are pickled, or if it has no image-text processor or no chat template.
    """
    refuse_pickles(folder)
    processor = load_processor(folder)
    if getattr(processor, "chat_template", None) is None:
        raise ValueError(
            f"{folder}: the chat template is missing; add chat_template.jinja, or use an instruction-tuned model"
        )
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype, use_safetensors=True)
    return ImageTextModel(model.to(device).eval().requires_grad_(False), processor, system=system)


def load_processor(folder: Path) -> Any:
    """Return the processor in a folder, without its video processor if torchvision is not installed.

    Raises ValueError if the model has no image-text processor.
    """
    if is_torchvision_available():
        return AutoProcessor.from_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    if type(config) not in PROCESSOR_MAPPING:
        raise ValueError(
            f"{folder}: transformers has no image-text processor for {config.model_type}; use another model"
        )
    declared: Any = PROCESSOR_MAPPING[type(config)]
    if "video_processor" not in declared.get_attributes():
        return AutoProcessor.from_pretrained(folder)

    class WithoutVideos(declared):  # type: ignore[misc, valid-type]
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in super().get_attributes() if name != "video_processor"]

        @classmethod
        def _get_arguments_from_pretrained(cls, *args: Any, **options: Any) -> list[Any]:
            loaded = dict(
                zip(cls.get_attributes(), super()._get_arguments_from_pretrained(*args, **options), strict=True)
            )
            return [loaded.get(name) for name in declared.get_attributes()]

    return WithoutVideos.from_pretrained(folder)
