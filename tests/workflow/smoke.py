"""Which variants of the smoke grid the tests run: those that run code which no variant before them does.

A variant that only combines others, or sets another number where one of them does, is left to `make smoke`.
"""

from pathlib import Path

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def choices(variant):
    """What a variant chooses again: a word, a switch, something that was off; a number in place of another is none."""
    if variant.parent is None:
        return {("root", None)}
    return {
        (change.key, change.new if isinstance(change.new, str | bool) else None)
        for change in variant.changes
        if isinstance(change.new, str | bool) or not (change.old and change.new)
    }


def chosen_variants():
    """Variants of each study, in their order, that choose something which none before them does."""
    chosen = {}
    for name, study in load_studies(load_settings({"scale": "smoke"}, configs=CONFIGS)).items():
        seen, chosen[name] = set(), []
        for variant in study.variants.values():
            if not choices(variant) <= seen:
                seen |= choices(variant)
                chosen[name].append(variant.name)
    return chosen


def one_argument(chosen):
    """The choice as a word for `snakemake --config`."""
    return f"variant={','.join(sorted({name for names in chosen.values() for name in names}))}"
