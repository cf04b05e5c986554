"""Differences between two variants other than the change: their machines and installed packages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

PACKAGES = ("torch", "transformers", "vllm")


class Environment(NamedTuple):
    """The environment of a stage of a run, by its provenance; None where unknown."""

    key: str  # of the stage: equal where two variants share it
    torch: str | None
    transformers: str | None
    vllm: str | None
    device: str | None  # the accelerator, or the processor where it had none
    devices: str | None  # how many: sums over several are rounded differently, and in bfloat16 other tokens are sampled


Environments = Mapping[tuple[str, int], Mapping[str, Environment]]  # (variant, seed): by stage
_WORDS = {"device": "on different processors", "devices": "on different numbers of devices"} | {
    name: f"with different versions of {name}" for name in PACKAGES
}


def differing(known: Environments, child: str, parent: str, seeds: Sequence[int]) -> list[str]:
    """Return one phrase for each way in which the environments of paired runs differ.

    Stages of one name are compared, seed by seed, unless the two variants share them.
    """
    phrases: list[str] = []
    if not known:
        return phrases
    for name, words in _WORDS.items():
        found: dict[tuple[int, str], tuple[str, str]] = {}
        for seed in seeds:
            ours, theirs = known.get((child, seed), {}), known.get((parent, seed), {})
            for stage in (stage for stage in ours if stage in theirs and ours[stage].key != theirs[stage].key):
                one, other = getattr(ours[stage], name), getattr(theirs[stage], name)
                if one and other and one != other:
                    found[seed, stage] = one, other
        if found:
            one, other = (_listed(values) for values in zip(*found.values(), strict=True))
            stages = _listed([stage for _, stage in found])
            of = f"in {len({seed for seed, _ in found})} of {len(seeds)} seeds"
            phrases.append(f"{stages} ran {words} {of}: {other} for {parent}, {one} for {child}")
    return phrases


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))
