"""Bytes of the tensors of training and sampling, from a model's shape and the numbers of rows and tokens.

Weights, gradients and optimiser states are exact. Of a forward and backward pass the tensors are counted that are alive
at the moment that needs most; a kernel's own workspace is not. `tests/trainers/footprint` runs these passes and
counts their tensors.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from ablation.contract.footprint import Held, Work
from trainers.footprint.shapes import Shape

FLOAT, HALF = 4, 2  # bytes of float32 and bfloat16
COPIES = "bfloat16 copies of weights"  # that autocast makes
_SAMPLING = 28  # bytes per logit while a token is drawn: logits, divided, log-softmax, in double precision, cumulated
_SCORING = 12  # per logit while log-probabilities and entropies are computed: logits, softmax, product
_FORWARD = 16  # the same where a backward pass follows, which needs the log-softmax as well
# In the backward pass, by whether the entropy has a gradient.
_LEARNING = {"dropped": 16, "learnt": 24}


class Precision(Protocol):
    """What is read of a study's settings of its precision."""

    @property
    def compute(self) -> str: ...  # noqa: D102
    @property
    def activation_checkpointing(self) -> bool: ...  # noqa: D102


def trained(name: str, parameters: int) -> tuple[Held, ...]:
    """Return what parameters in float32 with AdamW hold: gradients stay between two steps."""
    parts = {"weights": FLOAT, "gradients": FLOAT, "optimiser": 2 * FLOAT}
    return tuple(Held(f"{name}: {part}", size * parameters) for part, size in parts.items())


def frozen(name: str, parameters: int, precision: Precision) -> tuple[Held, ...]:
    """Return what a frozen model holds, in the precision of the forward pass."""
    return (Held(f"{name}: weights", weight_size(precision) * parameters),)


def weight_size(precision: Precision) -> int:
    """Return the bytes of a frozen model's parameter."""
    return HALF if _mixed(precision) else FLOAT


def work(name: str, rows: int, parts: Callable[[int], Mapping[str, int]], gathered: int = 0) -> Work:
    """Return the work of `rows` rows at once.

    parts: bytes by name for a number of rows. gathered: bytes of weights that are whole meanwhile, of a sharded model.
    """
    whole = {"gathered weights": gathered} if gathered else {}
    return Work(name, rows, {**parts(rows), **whole}, sum(parts(1).values()) + gathered)


def drawing(
    name: str,
    shape: Shape,
    precision: Precision,
    *,
    rows: int,
    group: int,
    prompt: int,
    response: int,
    frozen: bool = False,
    sharded: bool = False,
) -> Work:
    """Return the work of sampling `rows` responses at once; arguments as for `sampling`.

    sharded: with all the weights meanwhile; in bfloat16 a copy in which autocast finds nothing to change: linear layers
    in bfloat16, the embedding and norms in float32 (`trainers.parallel.rollout_copy`).
    """
    copied = sharded and _mixed(precision)

    def parts(n: int) -> dict[str, int]:
        among = min(group, n)
        found = sampling(shape, precision, rows=n, group=among, prompt=prompt, response=response, frozen=frozen)
        return {name: size for name, size in found.items() if not (copied and name == COPIES)}

    whole = FLOAT * shape.parameters
    if copied:
        linear = shape.linear * shape.layers
        rest = shape.parameters - linear - (0 if shape.tied else shape.matrix)
        whole = HALF * (linear + shape.matrix) + FLOAT * rest
    return work(name, rows, parts, whole if sharded else 0)


def share(rows: int, at_once: int | None, devices: int) -> int:
    """Return how many of `rows` rows a device has at once: of its share, and at most `at_once`."""
    own = -(-rows // devices)
    return own if at_once is None else min(own, at_once)


def gathered(shape: Shape, *, size: int = FLOAT, learnt: bool = True) -> int:
    """Return the bytes of weights that are whole in a pass of a sharded model: of two blocks, and what is in none.

    One block is computed, the next is fetched. size: bytes of a parameter. learnt: their gradients are whole as well.
    """
    return (2 if learnt else 1) * size * (shape.parameters - max(0, shape.layers - 2) * shape.block)


def update(
    shape: Shape,
    precision: Precision,
    tokens: int,
    *,
    predicted: int = 0,
    entropy: str = "dropped",
    frozen: bool = False,
    cached: bool = True,
) -> dict[str, int]:
    """Return what a forward and backward pass needs beside weights, gradients and optimiser.

    Args:
        shape: of the model that learns.
        precision: autocast and activation checkpointing.
        tokens: of all rows together, padding counts.
        predicted: tokens for whose distribution logits are computed; 0 for a critic, which has none.
        entropy: dropped, or learnt (with an entropy bonus).
        frozen: the weights are in the precision of the pass, so there are no copies of them; so it is beside adapters.
        cached: autocast keeps its copies of weights until the forward pass ends; not where a model is sharded.
    """
    mixed = _mixed(precision)
    size = HALF if mixed else FLOAT
    block = _kept_in_block(shape, mixed=mixed) * tokens
    kept = FLOAT * shape.hidden * tokens if precision.activation_checkpointing else block
    activations = shape.layers * kept + _kept_at_end(shape, mixed=mixed) * tokens
    # Gradients of the widest layer's output, and of its weights before they are added to those of earlier rows.
    widest = size * (shape.feed_forward + shape.hidden) * tokens + FLOAT * shape.feed_forward * shape.hidden
    recomputed = widest + (block if precision.activation_checkpointing else 0)
    copied = mixed and not frozen
    head = HALF * shape.matrix if copied and predicted else 0
    copies = (HALF * shape.linear * shape.layers if copied else 0) + head
    in_backward = copies if not precision.activation_checkpointing else head
    of_block = HALF * shape.linear if copied else 0
    moments = (
        {"logits": _FORWARD * predicted * shape.vocab, COPIES: copies if cached else in_backward},
        {
            "logits": _LEARNING[entropy] * predicted * shape.vocab,
            COPIES: in_backward,
        },
        {"recomputed block": recomputed, COPIES: in_backward + of_block},
    )
    most = max(moments, key=lambda parts: sum(parts.values()))
    return _some({"activations": activations, **most})


def forward(
    shape: Shape,
    precision: Precision,
    tokens: int,
    *,
    predicted: int = 0,
    frozen: bool = False,
    cached: bool = True,
) -> dict[str, int]:
    """Return what a pass without gradient needs beside the weights; arguments as for `update`."""
    copied = _mixed(precision) and not frozen
    head = HALF * shape.matrix if copied and predicted else 0
    block = HALF * shape.linear if copied else 0
    every = shape.layers * block + head
    moments = (
        {"activations": _passing(shape, precision, frozen=frozen) * tokens, COPIES: every if cached else block},
        {
            "activations": _state(shape, precision, frozen=frozen) * tokens,
            "logits": _SCORING * predicted * shape.vocab,
            COPIES: every if cached else head,
        },
    )
    return _some(max(moments, key=lambda parts: sum(parts.values())))


def sampling(
    shape: Shape,
    precision: Precision,
    *,
    rows: int,
    group: int,
    prompt: int,
    response: int,
    frozen: bool = False,
) -> dict[str, int]:
    """Return what sampling `rows` responses at once needs beside the weights.

    group: responses of one prompt, which is read once. prompt, response: tokens. frozen: as for `forward`.
    """
    of_token = _cached(shape, precision, frozen=frozen) * shape.layers
    prompts = -(-rows // group)
    reading = _passing(shape, precision, frozen=frozen) * prompts * prompt
    cache = of_token * rows * (prompt + response)
    grown = cache // (2 * shape.layers)  # a layer's keys with one more token are a new tensor, beside the old
    moments = (
        {"KV cache": of_token * prompts * prompt, "activations": reading},
        {"KV cache": cache + grown},
        {"KV cache": cache, "logits": _SAMPLING * rows * shape.vocab},
    )
    most = max(moments, key=lambda parts: sum(parts.values()))
    copies = HALF * (shape.linear * shape.layers + shape.matrix) if _mixed(precision) and not frozen else 0
    return _some(most | {COPIES: copies})


def _mixed(precision: Precision) -> bool:
    return precision.compute == "bfloat16"


def _some(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in parts.items() if size}


def _cached(shape: Shape, precision: Precision, *, frozen: bool) -> int:
    """Return the bytes of a token's key and value in one layer's cache.

    Autocast of a gated model: rotary positions are in float32, so keys are, and the cache makes values likewise.
    """
    half = _mixed(precision) and (frozen or shape.family == "gpt2")
    return 2 * (HALF if half else FLOAT) * shape.keys


def _kept_in_block(shape: Shape, *, mixed: bool) -> int:
    """Return the bytes per token that one block keeps for its backward pass.

    Both norms keep their input, the normalised input and, for the layers that read it, the output; attention its
    queries, keys, values, output and a number per head; the MLP each of its inner activations.
    """
    h, f, a, k = shape.hidden, shape.feed_forward, shape.queries, shape.keys
    numbers = FLOAT * shape.heads + 2 * FLOAT
    if shape.family == "gpt2":
        return (20 * h + 10 * f if mixed else FLOAT * (8 * h + 5 * f)) + numbers
    of_heads = (2 * FLOAT) * (a + k) if shape.qk_norm else 0
    return (26 * h + 4 * (a + k) + 8 * f if mixed else FLOAT * (6 * h + 2 * a + 2 * k + 4 * f)) + numbers + of_heads


def _kept_at_end(shape: Shape, *, mixed: bool) -> int:
    """Return the bytes per token that the last norm keeps: its input, what is normalised, its output."""
    if shape.family == "gpt2":
        return (6 if mixed else 8) * shape.hidden
    return (10 if mixed else 12) * shape.hidden


def _state(shape: Shape, precision: Precision, *, frozen: bool) -> int:
    """Return the bytes of a token's hidden state between two blocks; autocast leaves it in float32."""
    return (HALF if frozen and _mixed(precision) else FLOAT) * shape.hidden


def _passing(shape: Shape, precision: Precision, *, frozen: bool) -> int:
    """Return the bytes per token that a block without gradient has at once: residual, norm, three of the MLP."""
    size = HALF if _mixed(precision) else FLOAT
    return 2 * _state(shape, precision, frozen=frozen) + size * (3 * shape.feed_forward + shape.hidden)
