"""What the stages of `demonstrations` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from types import SimpleNamespace

from ablation.contract.footprint import Footprint, ModelAsset
from trainers.demonstrations.config import DemonstrationsConfig
from trainers.footprint import Model, shape_of

QUESTION = 40  # tokens of a question with its answer and its place in the template
PATCH = 28 * 28  # pixels of an image that are one token of Qwen2.5-VL
CLIP = 427_616_513  # parameters of CLIP ViT-L/14
TRIED = {"task.dtype": "bfloat16", "score_batch": 1}  # what makes a stage smaller


def footprint(
    stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset], devices: int
) -> Footprint | None:
    """Return what a stage holds on each device: the in-context model and the embedder."""
    if config.task.name == "concepts" or stage not in ("embed", "candidates", "evaluate"):
        return None  # the selector, and the model of task concepts, are small
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
