"""GRPO by TRL, from a policy of 20,000 parameters: python train.py CONFIG.json --seed 0 --output FOLDER.

The policy is asked for even or odd digits. Everything of `config["grpo"]` is an argument of TRL's `GRPOConfig`.
"""

import argparse
import json
import random
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

WORDS = [*"0123456789", "even", "odd", "<end>", "<pad>"]


def reward(prompts: list[str], completions: list[str], **_: object) -> list[float]:
    """Return, for each completion, the share of eight words that are digits of the parity that its prompt asks for."""
    fitting = {"even": "02468", "odd": "13579"}
    pairs = zip(prompts, completions, strict=True)
    return [sum(word in fitting[prompt.split()[-1]] for word in text.split()) / 8 for prompt, text in pairs]


parser = argparse.ArgumentParser()
parser.add_argument("config", type=Path)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--output", type=Path, required=True)
arguments = parser.parse_args()
config = json.loads(arguments.config.read_text())

set_seed(arguments.seed)
words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>", padding_side="left")
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
sizes |= {"vocab_size": len(WORDS), "bos_token_id": None, "eos_token_id": 12, "pad_token_id": 13}
start = arguments.output / "start"  # instead of a model from the hub
LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(start)

prompts = [f"{first} {second} {parity}" for first in range(10) for second in range(10) for parity in ("even", "odd")]
random.Random(0).shuffle(prompts)  # the same test items for every seed
test, train = prompts[:100], Dataset.from_dict({"prompt": prompts[100:]})
settings = GRPOConfig(arguments.output, seed=arguments.seed, report_to=[], save_strategy="no", **config["grpo"])
trainer = GRPOTrainer(str(start), reward, settings, train, processing_class=tokenizer)
trainer.train()
trainer.save_state()  # trainer_state.json: what TRL logged

asked = tokenizer(test, return_tensors="pt", return_token_type_ids=False).to(trainer.model.device)
tokens = trainer.model.generate(**asked, max_new_tokens=8, do_sample=True)[:, asked.input_ids.shape[1] :]
values = reward(test, tokenizer.batch_decode(tokens, skip_special_tokens=True))
with (arguments.output / "items.jsonl").open("w") as file:
    for prompt, value in zip(test, values, strict=True):
        file.write(json.dumps({"item": prompt, "value": value}) + "\n")
