"""Which variants of the smoke grid the tests run: of each study as few as make every choice, or the first two of them.

A variant that only combines others, or sets another number where one of them does, is left to `make smoke`.
"""

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from tests.repository import ROOT

CONFIGS = ROOT / "configs"


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
    """Of each study as few variants as make every choice, with their parents, which run with them."""
    chosen = {}
    for name, study in load_studies(load_settings({"scale": "smoke"}, configs=CONFIGS)).items():
        made = {variant.name: choices(variant) for variant in study.variants.values()}
        parents = {variant.name: {variant.parent} - {None} for variant in study.variants.values()}

        def made_by(variants, made=made, parents=parents):
            run = variants.union(*(parents[variant] for variant in variants))
            return set().union(*(made[variant] for variant in run)), run

        needed = set(made)
        for variant in made:
            without = needed - {variant}
            if made_by(without)[0] == made_by(set(made))[0]:
                needed = without
        run = made_by(needed)[1]
        chosen[name] = [variant for variant in made if variant in run]
    return chosen


def first_two():
    """Of each study a root and a variant: each trainer once."""
    return {study: names[:2] for study, names in chosen_variants().items()}


def one_argument(chosen):
    """The choice as a word for `snakemake --config`."""
    return f"variant={','.join(sorted({name for names in chosen.values() for name in names}))}"
