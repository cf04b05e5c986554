"""Stage `learner` of study `demonstrations`: train the in-context model of task `concepts`."""

import torch
from torch import Tensor
from transformers import Lfm2Config, Lfm2ForCausalLM

from trainers.demonstrations.config import Concepts, Learner
from trainers.demonstrations.in_context_concepts import FOLDER, draw_sequences, first_label, vocabulary
from trainers.running.stage import Stage, run_seed
from trainers.running.state import State, run_steps

EMBEDDING_STD, CENTRE, NOISE = 0.3, 0.8, 0.6  # weights of a concept's centre and of a word's own vector


def build(task: Concepts, settings: Learner, seed: int) -> Lfm2ForCausalLM:
    """Return an untrained Lfm2 in which words of one concept have similar embeddings, which makes training easier."""
    config = Lfm2Config(
        vocab_size=vocabulary(task),
        hidden_size=settings.hidden,
        intermediate_size=settings.feed_forward,
        num_hidden_layers=2,
        layer_types=["conv", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        block_auto_adjust_ff_dim=False,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):  # transformers draws initial weights from the global generator
        torch.manual_seed(seed)
        model = Lfm2ForCausalLM(config)
        centres = torch.randn(task.concepts, settings.hidden).repeat_interleave(task.words, 0)
        vectors = torch.randn(task.concepts * task.words, settings.hidden)
        with torch.no_grad():
            words = model.get_input_embeddings().weight[: len(vectors)]
            words.copy_(EMBEDDING_STD * (CENTRE * centres + NOISE * vectors))
    return model


def run(stage: Stage) -> None:
    """Train the model on random sequences and save it; do nothing for a task with a pretrained model."""
    task, settings, seed = stage.config.task, stage.config.learner, run_seed(stage.seed)
    if task.name != "concepts":
        stage.log.info("the task %s has a pretrained model, so nothing is trained", task.name)
        return
    clean = task.model_copy(update={"word_noise": 0.0, "label_noise": 0.0})
    model = build(task, settings, seed).to(stage.devices[0]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed + 1_000_003)
    state = State({"model": model}, {"optimizer": optimizer}, {"generator": generator})

    def step(number: int) -> None:
        optimizer.param_groups[0]["lr"] = settings.lr * _rate(number, settings.steps)
        noisy = number >= settings.clean_share * settings.steps
        loss, accuracy = _loss(task if noisy else clean, settings, model, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if number % 20 == 0 or number + 1 == settings.steps:
            stage.log_metrics(number + 1, {"learner/loss": loss.detach(), "learner/accuracy": accuracy})

    every = 10 * stage.config.checkpoint_every
    run_steps(stage, step, steps=settings.steps, first=state.restore(stage), state=state, checkpoint_every=every)
    model.save_pretrained(stage.out / FOLDER)


def _loss(
    task: Concepts, settings: Learner, model: Lfm2ForCausalLM, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of all labels of a new batch, and the accuracy at the sequences' last labels."""
    shape = (settings.batch_size, settings.demonstrations)
    batch = draw_sequences(task, torch.randint(task.labels, shape, generator=generator), generator)
    first, device = first_label(task), model.device
    tokens = torch.cat([batch.words, first + batch.shown[..., None]], dim=-1).flatten(1).to(device)
    logits = model(input_ids=tokens, use_cache=False).logits[:, 1::3, first:]  # after the second word of each pair
    gold = batch.gold.to(device)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), gold.flatten())
    return loss, (logits[:, -1].argmax(-1) == gold[:, -1]).float().mean()


def _rate(step: int, steps: int) -> float:
    """Return a step's share of the peak rate: it rises linearly over a tenth of the steps, and then falls to 0.1."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 1.0 - 0.9 * (step - warm) / max(1, steps - warm)
