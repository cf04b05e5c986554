"""What the stages of `demonstrations` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from types import SimpleNamespace

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.demonstrations.config import DemonstrationsConfig
from trainers.footprint import CLIP, FLOAT, Model, Shapes, trained

ASSUMED_QUESTION = 40  # tokens of a question with its answer and its place in the template
PATCH = 28 * 28  # pixels of an image that are one token of Qwen2.5-VL
CLIP_WIDTH = 2 * 768  # of an embedding by CLIP ViT-L/14: image and text
TRIED = {"task.dtype": "bfloat16", "score_batch": 1}  # what makes a stage smaller


def footprint(
    stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset], devices: int
) -> Footprint | None:
    """Return what a stage holds on each device: the in-context model and the embedder, or the selector."""
    if stage in ("rce", "grpo"):
        return _selector(stage, config, models)
    if config.task.name == "concepts":
        return Footprint(unknown=("the in-context learner of the task concepts: about 0.1 million parameters",))
    if stage == "learner":
        return None
    shapes, vision = Shapes(models), config.task.name == "vision"
    shape = shapes.of("model", "model")
    if shape is None:
        return Footprint(unknown=shapes.unknown)
    # A frozen model is in the precision of its weights, without autocast.
    dtype = config.task.dtype if config.task.name == "vision" else "float32"
    model = Model("model", shape, SimpleNamespace(compute=dtype), frozen=True)
    held, unknown, assumed = model.held, [], [f"{ASSUMED_QUESTION} tokens for a question with its answer"]
    turns, answer, image = max(config.shots, config.train_shots or 0) + 1, 1, 0
    if config.task.name == "vision":
        image, answer = config.task.max_pixels // PATCH, config.task.max_new_tokens
        assumed.append(f"{image} tokens for an image of task.max_pixels")
        repo = getattr(models["embedder"].asset.sources[0], "repo", "")
        if repo in CLIP:
            held["embedder: weights"] = model.number * CLIP[repo]
        else:
            unknown.append("the embedder: its size is not listed")
        unknown.append("activations of the vision tower and of the embedder")
    prompt = turns * (ASSUMED_QUESTION + image)
    answering = model.sampling("answers", config.score_batch, prompt=prompt, response=answer)
    works = () if stage == "embed" and vision else (answering,)
    host = {"weights": devices * sum(held.values())}  # each process reads the models for itself
    return Footprint(held, works, host, tuple(assumed), tuple(unknown))


def _selector(stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset]) -> Footprint | None:
    if config.selector.kind != "pointer" or (stage == "grpo" and not config.grpo.enabled):
        return None
    width = _embedding(config, models)
    if width is None:
        return Footprint(unknown=("the width of the embeddings: that of `model`, whose size is not listed",))
    pool, hidden = config.task.candidates, config.selector.hidden
    data = FLOAT * width * config.task.sizes.train * (1 + pool)
    held = {**trained("selector", _parameters(config, width)), "embeddings of queries and pools": data}
    sequences = config.proposals.beam + len(config.proposals.temperatures) + config.proposals.random
    steps = sequences * (config.train_shots or config.shots)
    rows = config.rce.batch_size if stage == "rce" else config.grpo.batch_size
    # Embeddings of the batch, encoded candidates, and per sequence and step states and logits of each candidate.
    encoded, chosen = rows * pool * (width + 4 * hidden), rows * steps * (6 * hidden + 6 * pool)
    learning = Work("update of the selector (not in smaller parts)", rows, lambda n: FLOAT * (encoded + chosen))
    return Footprint(held, (learning,), {"embeddings": 2 * data})


def _embedding(config: DemonstrationsConfig, models: Mapping[str, ModelAsset]) -> int | None:
    if config.task.name == "concepts":
        return config.task.d_embedding
    if config.task.name == "vision":
        return CLIP_WIDTH
    shape = Shapes(models).of("model", "model")
    return None if shape is None else shape.hidden


def _parameters(config: DemonstrationsConfig, width: int) -> int:
    """Return the parameters of the pointer selector (`selector.PointerSelector`)."""
    h = config.selector.hidden
    layer = 2 * h + (4 * h * h + 4 * h) + 2 * h + (2 * h * h + 2 * h) + (2 * h * h + h)
    recurrent = 2 * (3 * h * h + 3 * h)
    return 2 * (width * h + h) + 2 * h + config.selector.layers * layer + h + recurrent + (h * h + h) + 1
