"""Writes `written/PART`, or `FOLDER/PART`: small files by the real packages, which the tests read.

python tests/ablation/readers/make_written.py PART [FOLDER]

trainer        transformers 5.23, accelerate 1.15, torch: the environment of tests/peers/trl.txt
trl            trl 1.16, datasets 5.2: likewise
verl           verl 0.9.1's sources and orjson: the environment of tests/peers/verl.txt
tensorboard    torch's SummaryWriter, tensorboard 2.21: the everyday environment
"""

import ast
import importlib.metadata
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent / "written"


def keep(place: Path, *patterns: str) -> None:
    """Delete all other files, and the folders that are empty then."""
    for path in sorted(place.rglob("*"), reverse=True):
        if path.is_file() and not any(map(path.match, patterns)):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def trainer(folder: Path) -> None:
    """Two runs of the Trainer on a linear model: seed 0 with checkpoints, seed 1 resumed from one and stopped early."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward(self, x=None, labels=None):
            return {"loss": ((x @ self.weight - labels) ** 2).mean(), "logits": x @ self.weight}

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= 6

    rows = [{"x": torch.tensor([i / 4, 1.0]), "labels": torch.tensor(i / 2)} for i in range(8)]
    for name, seed, rate, steps, callbacks in [
        ("base/seed_0", 0, 0.05, 4, []),
        ("base/seed_1", 1, 0.05, 4, []),
        ("fast/seed_0", 0, 0.2, 4, []),
        ("fast/seed_1", 1, 0.2, 8, [Stop()]),
    ]:
        place = folder / name
        arguments = TrainingArguments(
            output_dir=str(place),
            max_steps=steps,
            seed=seed,
            learning_rate=rate,
            per_device_train_batch_size=2,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            save_steps=2,
            report_to=["tensorboard"],
            use_cpu=True,
            disable_tqdm=True,
        )
        made = Trainer(Model(), arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=callbacks)
        made.train()
        made.save_state()
        (place / "training_args.json").write_text(arguments.to_json_string())
        keep(place, "trainer_state.json", "training_args.json", "*tfevents*")


def trl(folder: Path) -> None:
    """GRPO of a random model of two layers, which logs completions at each step."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = ["<pad>", "<eos>", "<unk>", *"abcdefgh"]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )

    def length(completions, **kwargs):
        return [float(len(text.split())) for text in completions]

    def has_a(completions, **kwargs):
        return [float("a" in text.split()) for text in completions]

    for seed in (0, 1):
        place = folder / f"grpo-s{seed}"
        arguments = GRPOConfig(
            output_dir=str(place),
            max_steps=2,
            seed=seed,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=4,
            logging_steps=1,
            log_completions=True,
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            save_strategy="no",
        )
        data = Dataset.from_dict({"prompt": ["a b", "c d", "e f", "g h"]})
        made = GRPOTrainer(LlamaForCausalLM(config), [length, has_a], arguments, data, processing_class=tokenizer)
        made.train()
        made.save_state()
        made.save_model()
        keep(place, "trainer_state.json", "training_args.bin", "*.parquet")


def verl(folder: Path) -> None:
    """Logs by verl's FileLogger and samples by its trainer's `_write_generations`, both cut out of verl's sources."""
    import numpy as np
    import orjson

    files = {str(file): Path(str(file.locate())) for file in importlib.metadata.files("verl") or ()}
    names = {"np": np, "orjson": orjson, "os": os, "json": json}

    def cut(file: str, name: str) -> object:
        text = files[file].read_text()
        [node] = [
            n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name
        ]
        exec(textwrap.dedent(ast.get_source_segment(text, node, padded=True)), names)
        return names[name]

    logger, write = (
        cut("verl/utils/tracking.py", "FileLogger"),
        cut("verl/trainer/ppo/ray_trainer.py", "_write_generations"),
    )
    os.environ["VERL_FILE_LOGGER_ROOT"] = str(folder)

    def run(project: str, seed: int, first: int, last: int, gain: float) -> None:
        log = logger(project, f"seed_{seed}")
        generator = np.random.default_rng(seed)
        for step in range(1, last + 1):
            noise = generator.normal(0, 0.01)
            if step >= first:
                log.log({"critic/score/mean": gain * step + noise, "actor/lr": np.float64(1e-6), "note": "text"}, step)
        scores = [float((i + seed) % 3 == 0 or gain > 0.1) for i in range(8)]
        inputs, answers = [f"{i // 2} + 1 =" for i in range(8)], [str(i // 2 + 1) for i in range(8)]
        samples = folder / project / f"seed_{seed}" / "validation"
        write(inputs, answers, answers, scores, {"acc": scores, "pred": answers}, str(samples), last)
        log.finish()

    for seed in (0, 1):
        run("grpo", seed, 1, 6, 0.1)
        run("gspo", seed, 1, 6, 0.2)
    shutil.copytree(folder / "grpo", folder / "resumed")
    run("resumed", 0, 5, 8, 0.1)  # opened again by a run that was resumed after step 4


def tensorboard(folder: Path) -> None:
    """A run of more points than EventAccumulator keeps, restarted within them, and two writers of one run."""
    from torch.utils.tensorboard import SummaryWriter

    run = folder / "lr_0.1/seed_0"
    with SummaryWriter(run) as writer:
        for step in range(300):
            writer.add_scalar("loss", 1.0 - step / 1000, step)
        writer.add_text("note", "not a setting")
        writer.add_text("hyperparameters", "|param|value|\n|-|-|\n|lr|0.1|\n|seed|0|")
        writer.add_scalar("eval/accuracy", 0.25, 250)
    with SummaryWriter(run, filename_suffix=".again") as writer:  # restarted from step 200
        for step in range(200, 320):
            writer.add_scalar("loss", 2.0 - step / 1000, step)
    other = folder / "lr_0.2/seed_0"
    with SummaryWriter(other) as writer, SummaryWriter(other, filename_suffix=".eval") as beside:
        for step in range(20):
            writer.add_scalar("loss", 0.5 - step / 1000, step)
            beside.add_scalar("eval/accuracy", step / 20, step)
        writer.add_hparams({"lr": 0.2, "seed": 0}, {"best": 0.5}, run_name="1700000000.5")


if __name__ == "__main__":
    part, *elsewhere = sys.argv[1:]
    place = Path(*elsewhere or [HERE]) / part
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    os.chdir(place)  # the settings hold paths
    globals()[part](Path())
