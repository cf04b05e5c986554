"""What the stages of `demonstrations` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from types import SimpleNamespace

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.demonstrations.config import DemonstrationsConfig
from trainers.footprint import FLOAT, LEARNT, Model, shape_of

QUESTION = 40  # tokens of a question with its answer and its place in the template
PATCH = 28 * 28  # pixels of an image that are one token of Qwen2.5-VL
CLIP, CLIP_WIDTH = 427_616_513, 2 * 768  # parameters of CLIP ViT-L/14; its embedding of an image and a text
TRIED = {"task.dtype": "bfloat16", "score_batch": 1}  # what makes a stage smaller


def footprint(
    stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset], devices: int
) -> Footprint | None:
    """Return what a stage holds on each device: the in-context model and the embedder, or the selector."""
    if stage in ("rce", "grpo"):
        return _selector(stage, config, models)
    if config.task.name == "concepts" or stage == "learner":
        return None  # of the task concepts it has 0.1 million parameters
    shape, notes, image, answer = shape_of(models, "model"), [f"assumed: questions of {QUESTION} tokens"], 0, 1
    # A frozen model is in the precision of its weights, without autocast.
    dtype = config.task.dtype if config.task.name == "vision" else "float32"
    model = Model("model", shape, SimpleNamespace(compute=dtype), frozen=True)
    held = model.held
    if config.task.name == "vision":
        image, answer = config.task.max_pixels // PATCH, config.task.max_new_tokens
        held["embedder: weights"] = model.weights // model.parameters * CLIP
        notes.append(f"assumed: images of {image} tokens (task.max_pixels), and that `embedder` is CLIP ViT-L/14")
        notes.append("not counted: activations of the vision tower and of the embedder")
    prompt = (max(config.shots, config.train_shots or 0) + 1) * (QUESTION + image)
    answering = model.sampling("answers", config.score_batch, prompt=prompt, response=answer)
    works = () if stage == "embed" and config.task.name == "vision" else (answering,)
    # Each process reads the models for itself.
    return Footprint(held, works, devices * sum(held.values()), tuple(notes))


def _selector(stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset]) -> Footprint | None:
    if config.selector.kind != "pointer" or (stage == "grpo" and not config.grpo.enabled):
        return None
    if config.task.name == "concepts":
        width = config.task.d_embedding
    else:
        width = CLIP_WIDTH if config.task.name == "vision" else shape_of(models, "model").hidden
    pool, h = config.task.candidates, config.selector.hidden
    data = FLOAT * width * config.task.sizes.train * (1 + pool)
    parameters = 2 * width * h + (8 * config.selector.layers + 7) * h * h
    held = {"selector": LEARNT * parameters, "embeddings of queries and pools": data}
    sequences = config.proposals.beam + len(config.proposals.temperatures) + config.proposals.random
    steps = sequences * (config.train_shots or config.shots)
    rows = config.rce.batch_size if stage == "rce" else config.grpo.batch_size
    # Embeddings of the batch, encoded candidates, and per sequence and step states and logits of each candidate.
    size = FLOAT * rows * (pool * (width + 4 * h) + steps * (6 * h + 6 * pool))
    return Footprint(held, (Work("update of the selector (not in smaller parts)", rows, lambda n: size),), 2 * data)
