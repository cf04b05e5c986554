"""What the stages of `demonstrations` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping

from ablation.contract.footprint import Footprint, Held, ModelAsset
from trainers.demonstrations.config import DemonstrationsConfig
from trainers.footprint.published import FIXED
from trainers.footprint.shapes import Shape, shape_of
from trainers.footprint.tensors import FLOAT, HALF, sampling, trained, work

ASSUMED_QUESTION = 40  # tokens of a question with its answer and its place in the template
PATCH = 28 * 28  # pixels of an image that are one token of Qwen2.5-VL
CLIP_WIDTH = 2 * 768  # of an embedding by CLIP ViT-L/14: image and text
TRIED = {"task.dtype": "bfloat16", "score_batch": 1}  # what makes a stage smaller


class _Frozen:
    """The precision of a frozen model: that of its weights, without autocast."""

    activation_checkpointing = False

    def __init__(self, compute: str) -> None:
        self.compute = compute


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
    shape = shape_of(models["model"])
    if shape is None:
        return Footprint(unknown=("the model: no configuration of it is on this machine, and its size is not listed",))
    dtype = config.task.dtype if config.task.name == "vision" else "float32"
    size = HALF if dtype == "bfloat16" else FLOAT
    held, unknown = [Held("model: weights", size * shape.parameters)], []
    turns, answer, image = max(config.shots, config.train_shots or 0) + 1, 1, 0
    if config.task.name == "vision":
        image, answer = config.task.max_pixels // PATCH, config.task.max_new_tokens
        source = models["embedder"].asset.sources[0]
        embedder = FIXED.get(getattr(source, "repo", ""))
        if embedder is None:
            unknown.append("the embedder: its size is not listed")
        else:
            held.append(Held("embedder: weights", size * embedder))
    prompt = turns * (ASSUMED_QUESTION + image)

    def answering(n: int) -> dict[str, int]:
        return sampling(shape, _Frozen(dtype), rows=n, group=1, prompt=prompt, response=answer, frozen=True)

    works = (
        () if stage == "embed" and config.task.name == "vision" else (work("answers", config.score_batch, answering),)
    )
    assumed = [f"{ASSUMED_QUESTION} tokens for a question with its answer"]
    if image:
        assumed.append(f"{image} tokens for an image of task.max_pixels")
        unknown.append("activations of the vision tower and of the embedder")
    host = {"weights": devices * sum(part.size for part in held)}  # each process reads the models for itself
    return Footprint(tuple(held), works, host, assumed=tuple(assumed), unknown=tuple(unknown))


def _selector(stage: str, config: DemonstrationsConfig, models: Mapping[str, ModelAsset]) -> Footprint | None:
    if config.selector.kind != "pointer" or (stage == "grpo" and not config.grpo.enabled):
        return None
    width = _embedding(config, models)
    if width is None:
        return Footprint(unknown=("the width of the embeddings: that of `model`, whose size is not listed",))
    parameters = _parameters(config, width)
    queries, pool = config.task.sizes.train, config.task.candidates
    data = FLOAT * width * queries * (1 + pool)
    held = (*trained("selector", parameters), Held("embeddings of queries and pools", data))
    sequences = config.proposals.beam + len(config.proposals.temperatures) + config.proposals.random
    steps = sequences * (config.train_shots or config.shots)

    def learning(n: int) -> dict[str, int]:
        # Embeddings of the batch, encoded candidates, and per sequence and step states and logits of each candidate.
        encoded = n * pool * (width + 4 * config.selector.hidden)
        chosen = n * steps * (6 * config.selector.hidden + 6 * pool)
        return {"activations": FLOAT * (encoded + chosen)}

    rows = config.rce.batch_size if stage == "rce" else config.grpo.batch_size
    name = "update of the selector (not in smaller parts)"
    whole = learning(rows)
    works = (work(name, rows, lambda n: whole),)  # a batch does not go through in parts here
    return Footprint(held, works, {"embeddings": 2 * data})


def _embedding(config: DemonstrationsConfig, models: Mapping[str, ModelAsset]) -> int | None:
    if config.task.name == "concepts":
        return config.task.d_embedding
    if config.task.name == "vision":
        return CLIP_WIDTH
    shape: Shape | None = shape_of(models["model"])
    return None if shape is None else shape.hidden


def _parameters(config: DemonstrationsConfig, width: int) -> int:
    """Return the parameters of the pointer selector (`selector.PointerSelector`)."""
    h = config.selector.hidden
    layer = 2 * h + (4 * h * h + 4 * h) + 2 * h + (2 * h * h + 2 * h) + (2 * h * h + h)
    recurrent = 2 * (3 * h * h + 3 * h)
    return 2 * (width * h + h) + 2 * h + config.selector.layers * layer + h + recurrent + (h * h + h) + 1
