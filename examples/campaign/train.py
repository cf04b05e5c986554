"""A toy for a loop: learns to tell two kinds of points apart, and prints its summary as autoresearch does."""

import argparse
import math
import random
import time

LR, DECAY, MOMENTUM, AVERAGE, WEIGHT_DECAY, CLIP = 0.4, 0.0, 0.5, False, 0.0, 10.0

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
chance = random.Random(parser.parse_args().seed)
began = time.time()


def point(source: random.Random) -> tuple[list[float], int]:
    """Return a point and its kind."""
    kind = source.randint(0, 1)
    return [source.gauss(0.5 * kind - 0.25, 1) for _ in range(20)], kind


def probability(weights: list[float], values: list[float]) -> float:
    """Return the probability of kind 1."""
    total = sum(w * x for w, x in zip(weights, values, strict=True))
    return 1 / (1 + math.exp(-max(-CLIP, min(CLIP, total))))


weights, speed, mean = [0.0] * 20, [0.0] * 20, [0.0] * 20
for step in range(1, 301):
    values, kind = point(chance)
    error = kind - probability(weights, values)
    rate = LR / (1 + DECAY * step)
    speed = [MOMENTUM * s + error * x - WEIGHT_DECAY * w for s, x, w in zip(speed, values, weights, strict=True)]
    weights = [w + rate * s for w, s in zip(weights, speed, strict=True)]
    mean = [m + (w - m) / step for m, w in zip(mean, weights, strict=True)]

used = mean if AVERAGE else weights
tests = random.Random("validation")
validation = [point(tests) for _ in range(1000)]
losses = [-math.log(max(1e-9, 1 - abs(kind - probability(used, values)))) for values, kind in validation]
print("---")
print(f"val_loss:          {sum(losses) / len(losses):.6f}")
print(f"training_seconds:  {time.time() - began:.1f}")
