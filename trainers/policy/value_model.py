"""Value models: a language model's body with one number per response token, for PPO's and GAD's critics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from trainers.objectives.token_rewards import increments
from trainers.policy.batch import Sequences
from trainers.policy.classifier import ids_around
from trainers.policy.config import Memory
from trainers.policy.models import (
    Placement,
    checkpoint_activations,
    load_tokenizer,
    refuse_other_tokenizer,
    save_weights,
    without_dropout,
)
from trainers.policy.plain import packs, states
from trainers.policy.text import pad, token_lists
from trainers.running.micro_batch import MicroBatch

HEAD = "head.safetensors"


def is_language_model(folder: Path) -> bool:
    """Return whether the model in `folder` is a causal language model, which has no score head."""
    architectures = AutoConfig.from_pretrained(folder, local_files_only=True).architectures or [""]
    return architectures[0].endswith("ForCausalLM")


class ValueModel(nn.Module):
    """Body and linear head that give each response token a number.

    sees_token: whether the number of a token includes the token (a score) or only what precedes it (a value). The head
    starts at 0, so that PPO's first advantages are the rewards themselves.
    """

    def __init__(self, body: PreTrainedModel, placement: Placement, *, sees_token: bool) -> None:
        super().__init__()
        self.body, self.placement, self.sees_token = body, placement, sees_token
        self.head = nn.Linear(body.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        without_dropout(self).to(placement.before_sharding).eval()
        if placement.precision.activation_checkpointing:  # active in training mode only
            checkpoint_activations(body)

    @classmethod
    def from_causal(cls, folder: Path, placement: Placement, *, sees_token: bool) -> Self:
        """Return a value model with the body of the language model in `folder` and a head of zeros."""
        body = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        return cls(body, placement, sees_token=sees_token)

    @classmethod
    def from_reward_model(cls, folder: Path, placement: Placement, policy: Path) -> Self:
        """Return a value model with body and head of the sequence or token classifier in `folder`.

        Raises ValueError if the classifier has several outputs, no linear head on the last hidden states, or another
        tokenizer than the model in `policy`, whose token ids it reads.
        """
        refuse_other_tokenizer(folder, policy)
        architectures = AutoConfig.from_pretrained(folder, local_files_only=True).architectures or [""]
        per_token = architectures[0].endswith("ForTokenClassification")  # verl and `export` write critics so
        kind = AutoModelForTokenClassification if per_token else AutoModelForSequenceClassification
        model = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        score = getattr(model, "score", None)
        if model.config.num_labels != 1 or not isinstance(score, nn.Linear):
            raise ValueError(
                f"{folder}: the reward model has num_labels {model.config.num_labels}, and its layer `score` has the "
                f"type {type(score).__name__}; use a model with num_labels 1 and a linear layer `score`"
            )
        made = cls(model.base_model, placement, sees_token=True)
        with torch.no_grad():
            made.head.weight.copy_(score.weight)
            if score.bias is not None:
                made.head.bias.copy_(score.bias)
        return made

    def with_adapters(self, memory_settings: Memory, seed: int | None) -> Self:
        """Return the model with adapters in the body if `memory_settings` asks for them; the head stays trainable."""
        if memory_settings.lora is not None:
            self.placement.adapters.adapt(self.body, memory_settings.lora, self.placement.precision, seed=seed or 0)
        return self

    def save(self, folder: Path) -> None:
        """Write the body in transformers' format, and the head as a separate file in the same folder."""
        ranks = self.placement.ranks
        save_weights(folder, self.body, ranks)
        head = {name: ranks.full_tensor(value).cpu().contiguous() for name, value in self.head.state_dict().items()}
        if ranks.rank == 0:
            save_file(head, folder / HEAD)

    @classmethod
    def load(cls, folder: Path, placement: Placement, *, sees_token: bool) -> Self:
        """Return the value model that `save` wrote to `folder`."""
        made = cls.from_causal(folder, placement, sees_token=sees_token)
        made.head.load_state_dict(load_file(folder / HEAD, device=str(placement.before_sharding)))
        return made

    def forward(self, sequences: Sequences) -> Tensor:
        """Return the numbers (N, T) of the responses' tokens, in float32, 0 at padding."""
        keep = sequences.completion_mask.bool()
        width = keep.shape[1]
        with self.placement.autocast():
            if packs(self.body):  # never in bfloat16
                numbers = self.head(states(self.body, sequences, last=self.sees_token))[..., 0]
                return numbers.new_zeros(keep.shape).masked_scatter(keep, numbers)
            hidden = self.body(**sequences.model_inputs(), use_cache=False).last_hidden_state
        chosen = hidden[:, -width:] if self.sees_token else hidden[:, -width - 1 : -1]
        values = self.head(chosen.to(self.head.weight.dtype))[..., 0]
        return torch.where(keep, values, 0.0)


class TokenRewardModel:
    """Reward model for tokens: a sequence classifier whose head is applied at every token.

    Raises ValueError if its tokenizer differs from the policy's. If it has a chat template, it reads chats in that
    template instead of the policy's prompts. Several ranks share its weights, and each scores a part of the responses.
    """

    def __init__(self, folder: Path, placement: Placement, policy: Path, batch_size: int = 64) -> None:
        ranks = placement.ranks

        def load() -> ValueModel:
            return ValueModel.from_reward_model(folder, placement, policy).requires_grad_(False)

        self.model = placement.shard(ranks.build(load))
        self.tokenizer = load_tokenizer(folder, generates=False)
        self.device, self.micro_batch = placement.device, MicroBatch(batch_size, ranks=ranks)

    @torch.no_grad()
    def __call__(self, sequences: Sequences, prompts: Sequence[str], end: int) -> Tensor:
        """Return the rewards (N, T) of the tokens, on the CPU, 0 at padding.

        prompts: the user's messages, one per response. end: the end-of-sequence token, whose reward is 0 because reward
        models judge texts, which do not contain it.
        """
        width = sequences.completion_mask.shape[1]

        def judge(rows: Tensor) -> Tensor:
            chosen = sequences.select(rows.to(sequences.completion_mask.device)).to(self.device)
            inside = chosen.completion_mask * (chosen.completion_ids != end)
            if self.tokenizer.chat_template is None:
                rewards = increments(self.model(chosen), inside)
            else:
                rewards = self._in_chats([prompts[i] for i in rows.tolist()], chosen.completion_ids, inside.bool())
            return nn.functional.pad(rewards, (0, width - rewards.shape[1])).cpu()

        return torch.cat(self.micro_batch.run(torch.arange(len(sequences)), judge))

    def _in_chats(self, prompts: Sequence[str], ids: Tensor, inside: Tensor) -> Tensor:
        """Return the rewards (N, T) of the tokens of responses `ids`, at which `inside` (N, T) is true.

        Special tokens are left out of the chats. A response's last token also gets the reward of the rest of the chat,
        so that token rewards add up to the score of the whole chat.
        """
        read = inside & ~torch.isin(ids, ids.new_tensor(self.tokenizer.all_special_ids))
        before, after = ids_around(self.tokenizer, prompts)
        pairs = zip(token_lists(ids, read), after, strict=True)
        rows = [[*row, *tail] or before[0][:1] for row, tail in pairs]  # an empty row gets any token, with reward 0
        chats = Sequences(*pad(before, 0, left=True), *pad(rows, 0, left=False)).to(self.device)
        scores, lengths = self.model(chats), read.sum(1, keepdim=True)
        last_of_chat = scores.gather(1, chats.completion_mask.sum(1, keepdim=True) - 1)
        scores = scores.scatter(1, (lengths - 1).clamp(min=0), last_of_chat)
        in_response = torch.arange(scores.shape[1], device=scores.device) < lengths
        rewards = increments(scores, in_response)[in_response]
        return scores.new_zeros(read.shape).masked_scatter(read, rewards)
