"""The paragraph on methods says what the plan and the database say, and cites what it lists."""

import re

import pytest

from ablation.contract.rows import LOGGED
from ablation.show.methods import REFERENCES, methods
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.simulate import Study, editing, simulate

TREE = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2)}), "v2": ("v1", {"lr": (2, 3)})}


def text_of(folder, measured=({}, {}, {}), **analysis):
    states = {("v1", 1): "failed"}
    path = simulate(folder, [Study("s", variant_tree=TREE, seeds=4, states=states)])
    with editing(path) as plan:
        plan["studies"][0]["analysis"] |= analysis
        for variant, settings in zip(plan["studies"][0]["variants"], measured, strict=True):
            variant["resolved"] |= settings
    with Store(collect(folder).database) as store:
        return methods(store, "s")


def test_the_paragraph_has_the_numbers_of_the_study(tmp_path):
    text = text_of(tmp_path, correction="holm", variance="own", margin=0.03)
    assert "We compared 3 variants (scale simulated), each with the variant that it changes: 2 comparisons." in text
    assert (
        "trained with 4 training seeds, the same for all, and evaluated on the same 100 items (gender 40, race 60)"
        in text
    )
    assert (
        "The outcome was the distance of hit from 0.5 (protocol: edited), averaged over subsets gender and race" in text
    )
    assert "by Holm's correction [" in text
    assert "within ±0.03 and rests on at least 5 seeds" in text
    assert "or if seeds or items do not match; and not run if a planned run has not ended." in text
    assert "11 of 12 runs succeeded." in text
    assert "empirical Bayes" not in text.split("\n\n")[1].replace("Bayes [", "")


def test_settings_of_the_evaluation_that_all_variants_share_are_said(tmp_path):
    shared = {"samples": 8, "checkpoints": 3, "seed": 0}
    alike = [{"evaluate": shared | {"temperature": 1.0 + (number == 2)}} for number in range(3)]
    text = text_of(tmp_path / "alike", alike)
    assert "Settings of the evaluation (`evaluate`): samples 8, checkpoints 3, seed 0. " in text
    hostile = text_of(tmp_path / "hostile", [{"evaluate": {"prompt": "<script>alert(1)</script>"}}] * 3)
    assert r"prompt \<script>alert(1)\</script>" in hostile
    assert "Settings of the evaluation" not in text_of(tmp_path / "one", [*alike[:2], {"evaluate": 3}])


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"correction": "max-t", "interim_analyses": [3, 4]},
        {"error": "fdr"},
        {"comparisons": [["v2", "v0"]], "direction": "max"},
        {"seeds": "independent", "variance": "own"},
        {"claim": "checkpoints"},
        {"protocol": LOGGED},
    ],
)
def test_every_reference_is_cited_and_every_citation_is_listed(tmp_path, plan):
    _, paragraph, listed = text_of(tmp_path, **plan).split("\n\n")
    cited = [int(n) for found in re.findall(r"\[([\d, ]+)\]", paragraph) for n in found.split(", ")]
    numbers = [int(line.split(".")[0]) for line in listed.splitlines()]
    assert sorted(set(cited)) == numbers == list(range(1, len(numbers) + 1))
    assert list(dict.fromkeys(cited)) == numbers  # in the order in which they are cited
    assert {line.split(". ", 1)[1] for line in listed.splitlines()} <= set(REFERENCES.values())
    assert ("with interim analyses at 3, 4 seeds" in paragraph) == ("interim_analyses" in plan)
    assert ("in the pairs that the plan lists: 1 comparison." in paragraph) == ("comparisons" in plan)
    assert ("P-values were adjusted" in paragraph) == ("comparisons" not in plan)
    assert ("between two runs with the same seed" in paragraph) == ("seeds" not in plan)
    assert ("and rests on at least 5 seeds" in paragraph) == ("Its variance" in paragraph) == ("claim" not in plan)
    assert ("due to the items" in paragraph) == ("protocol" not in plan)
