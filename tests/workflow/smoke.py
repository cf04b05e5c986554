"""Which variants of the smoke grid the tests run: of each study as few as use every part, or make every choice.

A variant that only combines others, or sets another number where one of them does, is left to `make smoke`.
"""

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.parts import names_of
from tests.repository import ROOT

CONFIGS = ROOT / "configs"


def parts(study, variant):
    """The functions and classes of `trainers` that only some variants use."""
    return {(stage, part) for stage in study.stages for part in names_of(study.parts, variant.resolved, stage).values()}


def choices(study, variant):
    """What a variant chooses again: a word, a switch, something that was off; a number in place of another is none."""
    if variant.parent is None:
        return {("root", None)}
    return {
        (change.key, change.new if isinstance(change.new, str | bool) else None)
        for change in variant.changes
        if isinstance(change.new, str | bool) or not (change.old and change.new)
    }


def chosen_variants(things=choices):
    """Of each study as few variants as have all of these things, with their parents, which run with them."""
    chosen = {}
    for name, study in load_studies(load_settings({"scale": "smoke"}, configs=CONFIGS)).items():
        made = {variant.name: things(study, variant) for variant in study.variants.values()}
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


def one_argument(chosen):
    """The choice as a word for `snakemake --config`."""
    return f"variant={','.join(sorted({name for names in chosen.values() for name in names}))}"
