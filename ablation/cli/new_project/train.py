"""Classify two kinds of points by logistic regression, and write which test points were classified correctly."""

import argparse
import csv
import json
import math
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("config", type=Path)
parser.add_argument("--seed", type=int)
parser.add_argument("--output", type=Path)
arguments = parser.parse_args()
config = json.loads(arguments.config.read_text())


def points(number: int, chance: random.Random) -> list[tuple[list[float], int]]:
    """Return random points, each with its kind (0 or 1)."""
    kinds = [chance.randint(0, 1) for _ in range(number)]
    return [([chance.gauss(0.5 * kind - 0.25, 1) for _ in range(20)], kind) for kind in kinds]


def score(weights: list[float], point: list[float]) -> float:
    """Return the probability that a point is of kind 1."""
    return 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, point, strict=True))))


learnt, mean, losses = [0.0] * 20, [0.0] * 20, []
for step, (point, kind) in enumerate(points(config["steps"], random.Random(arguments.seed)), 1):
    error = kind - score(learnt, point)
    learnt = [w + config["lr"] * error * x for w, x in zip(learnt, point, strict=True)]
    mean = [m + (w - m) / step for m, w in zip(mean, learnt, strict=True)]
    losses.append((step, -math.log(max(1e-9, 1 - abs(error)))))

weights = mean if config["average"] else learnt
right = [(score(weights, point) > 0.5) == kind for point, kind in points(400, random.Random("test"))]  # for all runs
with (arguments.output / "metrics.csv").open("w", newline="") as file:
    csv.writer(file).writerows([("step", "train/loss"), *losses])
with (arguments.output / "items.csv").open("w", newline="") as file:
    csv.writer(file).writerows([("item", "correct"), *((item, int(fact)) for item, fact in enumerate(right))])
