"""The variants that `explain` writes between two others change nothing of their study but its answer."""

import re

import pytest

from ablation.judge.stored import read_measurements
from ablation.judge.verdicts import comparison_table, judge_study
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.show.tables import build_table
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.show.elements import unfolded
from tests.simulate import Study, editing, simulate

HELPERS = ("v4", "v5", "v6")


def store_of(folder, helpers):
    """Seven variants; v4 to v6 are noisier ones that `explain` wrote ("kept"), are "gone", or are roots ("roots")."""
    study = Study(variants=7, seeds=4, seed_sd=0.05, distance=0.25, distances={"v1": 0.3})
    with editing(simulate(folder, [study])) as plan:
        [planned] = plan["studies"]
        for variant in planned["variants"]:
            if variant["name"] in HELPERS:
                variant |= {"parent": None, "helper": helpers == "kept"}
        if helpers == "gone":
            planned["variants"] = [of for of in planned["variants"] if of["name"] not in HELPERS]
            planned["runs"] = [run for run in planned["runs"] if run["variant"] not in HELPERS]
            kept = {key for run in planned["runs"] for key in run["stages"].values()}
            plan["stages"] = [stage for stage in plan["stages"] if stage["key"] in kept]
    return Store(collect(folder).database)


@pytest.fixture
def stores(tmp_path):
    found = {helpers: store_of(tmp_path / helpers, helpers) for helpers in ("kept", "gone", "roots")}
    yield found
    for store in found.values():
        store.close()


def test_verdicts_are_those_without_the_helpers(stores):
    tables = {name: comparison_table([judge_study(store, "toy")]) for name, store in stores.items()}
    assert tables["kept"].equals(tables["gone"])
    assert not tables["kept"]["p"].equals(tables["roots"]["p"])  # as variants of the study they would form the prior


def test_tables_and_the_page_are_those_without_the_helpers(stores):
    rows = {name: build_table(store, "toy").rows for name, store in stores.items()}
    assert rows["kept"] == rows["gone"]
    named = {name: f">{HELPERS[0]}<" in draw(read_page(stores[name])) for name in ("kept", "roots")}
    assert named == {"kept": False, "roots": True}


def test_explain_sees_them(stores):
    measured = read_measurements(stores["kept"], "toy", helpers=True)
    assert {*HELPERS} < {*measured.parents}
    assert ("v4", 0) in measured.states
    assert ("v4", 0) not in read_measurements(stores["kept"], "toy").states
    assert measured.prior == read_measurements(stores["roots"], "toy").prior


def test_the_page_draws_what_explain_found_at_its_comparison(tmp_path):
    """`lr` alone halves the distance from 0.5, `clip` doubles it: the smaller distance is drawn as better."""
    tree = {
        "v0": (None, {}),
        "both": ("v0", {"lr": (1, 2), "clip": (3, 4)}),
        "lr": ("v0", {"lr": (1, 2)}),
        "clip": ("v0", {"clip": (3, 4)}),
    }
    distances = {"v0": 0.2, "lr": 0.05, "clip": 0.4, "both": 0.25}
    study = Study(variant_tree=tree, seeds=5, items={"all": 400}, distances=distances)
    with editing(simulate(tmp_path, [study])) as plan:
        for variant in plan["studies"][0]["variants"]:
            if variant["name"] in ("lr", "clip"):
                variant |= {"parent": None, "helper": True}
    with Store(collect(tmp_path).database) as store:
        html = unfolded(draw(read_page(store)))
    [drawn] = re.findall(r'<ul class="explained">(.*?)</ul>', html, re.DOTALL)
    found = re.findall(r'c-name">(.*?)</span>.*?class="(?:[^"]*)v-(\w+).*?class="num">([+−-][\d.]+)', drawn, re.DOTALL)
    effects = {name: (verdict, float(effect.replace("−", "-"))) for name, verdict, effect in found}
    assert {name: verdict for name, (verdict, _) in effects.items()} == {
        "lr": "better",
        "clip": "worse",
        "interaction of clip x lr": "undecided",
    }
    assert re.search(r"<p>clip \(-0\.\d+\) and lr \(\+0\.\d+\) work against each other\.</p>", html)
    assert "ablation explain toy/v0" not in html  # it was done
    assert effects["lr"][1] == pytest.approx(0.15, abs=0.03)
    assert effects["clip"][1] == pytest.approx(-0.2, abs=0.03)
