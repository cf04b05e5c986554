"""The report page without a browser: variant tree, axis, curves, texts, escaping, policy, and the same bytes twice."""

import base64
import hashlib
import json
import re
import time
from dataclasses import replace

import duckdb
import pytest

from ablation.config.judging_rules import RULES
from ablation.config.study_schema import CurveDefinition
from ablation.judge.comparisons import judge_all_pairs
from ablation.judge.stored import read_measurements
from ablation.show import methods
from ablation.show.page.content import anchors, problems, read_page
from ablation.show.page.data import FEWEST_BINS, plan_curves, study_curves
from ablation.show.page.render import SCRIPTS, draw
from ablation.show.text import interval, number, p_value, signed
from ablation.store import analysis_history
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.show.elements import Elements, packed, unfolded, write_report
from tests.simulate import DEBIAS, Study, editing, simulate

ATTACK = "<script>alert(1)</script>"
TREE = {"v1": (None, {}), ATTACK: ("v1", {"a<b": ("</script>", "<!--")}), "v2": ("v1", {"lr": (1, 2)})}


def build(folder, studies=(), scale="simulated", edit=None):
    """Simulate, let `edit` change the plan, collect; return the database."""
    path = simulate(folder / "results", [Study()] if studies == () else studies, scale=scale)
    if edit:
        with editing(path) as plan:
            edit(plan)
    return collect(folder / "results").database


def page(database):
    with Store(database) as store:
        return unfolded(draw(read_page(store)))


def text_of(html):
    """What a reader sees, on one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return " ".join(Elements(body).text.split())


# ---- comparisons of the plan


@pytest.mark.parametrize("error", ["fdr", "fwer"])
def test_verdicts_say_in_how_many_seeds_they_hold_and_which_share_a_parent(tmp_path, error):
    """v1 and v2 are better than one parent; v3 and v4 are not told from it, and v5 is the only child of its own."""

    def declare(plan):
        plan["studies"][0]["analysis"] |= {"error": error, "direction": {"target": 0.5}}

    distances = {"v0": 0.3, "v1": 0.1, "v2": 0.0, "v3": 0.3, "v4": 0.3, "v5": 0.1}
    seen = text_of(page(build(tmp_path, [Study("s", variants=6, seeds=4, distances=distances)], edit=declare)))
    together = "v1, v2 share the parent v0, so their verdicts are not independent."
    found = re.findall(r"[^.]*their verdicts are not independent\.", seen)
    assert found == ([f" {together}"] if error == "fdr" else [])
    assert seen.count("4 seeds rule out that more than 53% of seeds behave differently (95% confidence)") == 1


def test_every_comparison_that_the_plan_declares_is_on_the_page(tmp_path):
    """Pairs give a variant several comparisons, none with its parent; each has its row, its change and its evidence."""

    def pairs(plan):
        declared = [["v2", "v1"], ["v2", "v0"], ["v3", "v0"], ["v3", "v1"]]
        plan["studies"][0]["analysis"]["comparisons"] = declared

    variant_tree = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2)}), "v2": ("v1", {"clip": (0.1, 0.2)})}
    variant_tree["v3"] = ("v2", {"lr": (2, 3)})
    study = Study("s", variant_tree=variant_tree, seeds=3, items={"all": 400}, distances={"v3": 0.4, "v2": 0.0})
    html = page(build(tmp_path, [study], edit=pairs))
    seen = text_of(html)
    assert re.search(r"Simulated study s simulated scale 1 better 3 confounded", seen)
    assert "if no two variants differed, on average 0.3 of 6 pairs would still seem better or worse." in seen
    first = r"What helped v2 from v1 \+[\d.]+ \[[+\d., ]+\] What hurt No change hurt significantly\."
    assert re.search(rf"{first} Other results, and what to do next 3 changes mix several factors\. 3 seeds", seen)
    rows = re.findall(r'<li class="row against".*?</summary>', html, re.S)
    pairs = [re.findall(r'class="sr">(v\d) .*?</span> (v\d)</span>', row) for row in rows]
    assert pairs == [[("v2", "v0")], [("v3", "v0")], [("v3", "v1")]]
    changes = [re.findall(r'class="key">(.*?)<', row) for row in rows]
    assert changes == [["lr", "clip"], ["lr", "clip"], ["lr", "clip"]]
    assert "not compared with its parent" in seen
    assert '<option value="v1\tv3"' in html
    table = re.search(r'<th scope="row"[^>]*>v3</th>(.*?)</tr>', html, re.S)[1]
    assert re.search(r"\[.*\].*\[.*\] confounded against v0 confounded against v1 3$", text_of(table))


def test_the_picture_of_all_effects_has_the_best_on_top_with_the_interval_that_agrees_with_the_verdict(tmp_path):
    studies = [Study("s", seeds=3, distances={"v1": 0.0, "v2": 0.3}, states={("v3", 0): "missing"}), Study("t")]
    html = page(build(tmp_path, studies))
    effects = packed(html)["data"]["study-s-figures-data"]["effects"]
    rows = [dict(zip(effects["columns"], row, strict=True)) for row in effects["rows"]]
    picture = re.search(r'<svg class="forest all".*?</svg>', html, re.S)[0]
    drawn = re.findall(r'<g class="v-(.*?)">.*?d="M(.*?) (.*?)H(.*?)".*?d="M(.*?) ', picture)
    measured = sorted((row for row in rows if row["effect"] is not None), key=lambda row: -row["effect"])
    assert [verdict for verdict, *_ in drawn] == [row["verdict"].replace(" ", "-") for row in measured]
    assert [y for _, _, y, *_ in drawn] == ["5.0", "15.0", "25.0"][: len(drawn)]
    limit, width = (float(re.search(rf'data-{name}="(.*?)"', html)[1]) for name in ("limit", "width"))
    for (_, low, _, high, effect), row in zip(drawn, measured, strict=True):
        ends = [row["joint_low"], row["joint_high"]] if row["joint_low"] is not None else [row["low"], row["high"]]
        places = [10 + (min(max(value / limit, -1), 1) + 1) / 2 * (width - 20) for value in (*ends, row["effect"])]
        assert [float(low), float(high), float(effect)] == pytest.approx(places, abs=0.01)


# ---- any two variants


def pairs_of(html, study="study-s"):
    return packed(html)["data"][f"{study}-pairs-data"]


def test_every_pair_has_its_numbers_and_every_configuration_its_differences(tmp_path):
    variant_tree = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2), "a.b": (None, 3)}), "v2": ("v0", {"lr": (1, 4)})}
    database = build(tmp_path, [Study("s", variant_tree=variant_tree, seeds=3, distances={"v2": 0.4})])
    html = page(database)
    data = pairs_of(html)
    with Store(database) as store:
        comparisons = [pair.comparison for pair in judge_all_pairs(read_measurements(store, "s"))]
    at = data["variants"].index
    assert len(data["pairs"]) == len(comparisons) == 3
    for comparison in comparisons:
        *numbers, verdict, seeds, items, _ = data["pairs"][f"{at(comparison.child)} {at(comparison.parent)}"]
        own = [comparison.effect, comparison.low, comparison.high, comparison.p]
        assert numbers == pytest.approx(own, rel=1e-4)
        assert (data["verdicts"][verdict], seeds, items) == (comparison.detail, 3, 100)
    values = {
        name: {key: own.get(str(i), data["base"][i]) for i, key in enumerate(data["keys"])}
        for name, own in zip(data["variants"], data["own"], strict=True)
    }
    assert [values[name]["lr"] for name in ("v0", "v1", "v2")] == ["1", "2", "4"]
    assert [values[name]["a.b"] for name in ("v0", "v1", "v2")] == ["none", "3", "none"]
    assert data["comparisons"].keys() == {f"{at('v1')} {at('v0')}", f"{at('v2')} {at('v0')}"}
    rows = re.findall(r"<tr><th scope=\"row\">\d (v\d)</th>(.*?)</tr>", html)
    cells = {name: re.findall(r"<td.*?</td>", row) for name, row in rows}
    assert ["v-worse" in cells["v2"][at("v0")], "v-better" in cells["v0"][at("v2")]] == [True, True]
    assert Elements(cells["v0"][at("v0")]).text == ""


# ---- words


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(-0.5, 2), "−0.50"),
        (number(float("nan"), 2), "–"),
        (signed(-0.0123, 3), "−0.012"),
        (interval((-0.0123, 0.0456), 3), "[−0.013, +0.046]"),
        (p_value(0.00003), "3e−05"),
    ],
)
def test_words(shown, expected):
    assert shown == expected


def test_anchors_are_safe_and_unique():
    assert anchors(["debias", "De bias!", "de-bias", ATTACK, "诗"]) == [
        "study-debias",
        "study-de-bias",
        "study-de-bias-2",
        "study-script-alert-1-script",
        "study-x",
    ]


# ---- problems and provenance


def test_what_fails_alike_stands_once_and_what_only_waits_not_at_all(tmp_path):
    states = {("v1", 0): "failed", ("v2", 1): "failed", ("v3", 0): "missing", ("v3", 1): "diverged"}
    with Store(build(tmp_path, [Study(states=states)])) as store:
        found = problems(store, "toy")
    assert [(p["stage"], p["state"], p["runs"], len(p["dirs"])) for p in found] == [
        ("train", "failed", ["v1 seed 0", "v2 seed 1"], 2),
        ("train", "diverged", ["v3 seed 1"], 1),
        ("train", "missing", ["v3 seed 0"], 0),
    ]


# ---- the page


def hostile(plan):
    """Put markup wherever a text comes from a configuration."""
    [study] = plan["studies"]
    study |= {"title": ATTACK, "question": ATTACK, "source": ATTACK}
    study["curves"][0]["label"] = ATTACK
    study["table"]["columns"][0]["label"] = ATTACK
    for variant in study["variants"]:
        variant["why"] = f"\"'>{ATTACK}"


def add_event(database, variant, seed, **event):
    """Add a health event to the train stage of one run."""
    defaults = {"rule": "r", "metric": "m", "severity": "warn", "first_step": 1, "last_step": 1, "value": 1.0}
    event = defaults | {"diagnosis": "d", "remedy": "r"} | event
    with duckdb.connect(str(database)) as con:
        con.execute(
            f"INSERT INTO health (key, {', '.join(event)}) SELECT key, {', '.join('?' * len(event))} FROM run_stages"
            " WHERE study = 'toy' AND variant = ? AND seed = ? AND stage = 'train'",
            [*event.values(), variant, seed],
        )


def test_health_events_come_with_diagnosis_and_remedy_the_most_severe_first(tmp_path):
    database = build(tmp_path)
    add_event(database, "v0", 0, metric="lms", first_step=3, last_step=9, value=0.25, remedy="Raise loc_coef.")
    add_event(database, "v1", 1, severity="abort", diagnosis="The loss is not finite.", value=float("nan"))
    shown = text_of(page(database))
    assert "warning r: d. What to try: Raise loc_coef." in shown
    assert "v0 seed 0, train: lms reached 0.25 at steps 3 to 9" in shown
    assert shown.rindex("The loss is not finite.") < shown.index("Raise loc_coef.")
    assert "2 health rules broken" in shown


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    study = Study(variant_tree=TREE, states={("v2", 1): "failed"}, published={ATTACK: {"mean": 0.1}})
    database = build(tmp_path_factory.mktemp("attack"), [study], scale=ATTACK, edit=hostile)
    add_event(database, "v1", 0, **dict.fromkeys(("rule", "metric", "severity", "diagnosis", "remedy"), ATTACK))
    return page(database)


def test_markup_in_names_and_texts_stays_text(attacked):
    elements = Elements(attacked)
    scripts = [(attrs.get("type"), attrs.get("id")) for tag, attrs, _ in elements.inline if tag == "script"]
    assert scripts == [("application/gzip", "packed"), *[(None, None)] * len(SCRIPTS)]
    assert ATTACK not in attacked
    assert elements.text.count(ATTACK) > 10
    for content in packed(attacked)["data"].values():
        assert ATTACK in content.get("variants", json.dumps(content))


def test_the_policy_allows_exactly_the_inline_texts(attacked):
    elements = Elements(attacked)
    [policy] = [a["content"] for t, a in elements.tags if t == "meta" and "http-equiv" in a]
    found = {}
    for tag, attrs, text in elements.inline:
        if "type" not in attrs:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            found.setdefault(tag, set()).add(f"'sha256-{digest}'")
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert set(allowed["script-src"].split()) == found["script"]
    assert set(allowed["style-src"].split()) == found["style"]
    assert allowed["default-src"] == "'none'"


def test_nothing_is_loaded_and_nothing_is_handled_inline(attacked):
    for tag, attrs in Elements(attacked).tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {name for name in attrs if name.startswith("on") or name in ("style", "src", "srcdoc", "action")}
        for name in ("href", "xlink:href"):
            assert attrs.get(name, "#").startswith("#")


def test_the_scale_is_named_wherever_numbers_are(tmp_path):
    study = Study(variant_tree=DEBIAS, published={"v1": {"mean": 0.02}})
    shown = text_of(page(build(tmp_path, [study], scale="demo")))
    assert "Scale: demo. Compare variants with each other, not with published results" in shown
    assert "demo scale" in shown
    assert "Measured here at demo scale" in shown
    paper = text_of(page(build(tmp_path / "paper", [study], scale="paper")))
    assert "Compare variants with each other" not in paper


def test_stated_figures_of_the_training_stand_beside_our_curves(tmp_path):
    def state(plan):
        at = {"stage": "train", "at": {"step": 7, "of": 20}}
        reading = {"variant": "v1", "kind": "seen", "values": {"train/m00": 117}, "text": "explodes"} | at
        plan["studies"][0]["published"] = {"source": "a log", "model": None, "columns": [], "training": [reading]}

    shown = text_of(page(build(tmp_path, edit=state)))
    assert "Reported in a log." in shown
    said = r"train/m00 117 \(seen; step 7 of 20; explodes\)train/m00 \S+ \[\S+, \S+\]–not seen"
    assert re.search(said, shown)
    assert "Published: a log, unknown model." in shown


def test_a_change_of_the_plan_after_results_is_shown_and_a_new_rule_of_judging_is_no_alarm(tmp_path, monkeypatch):
    assert "the same since the first results" in text_of(page(build(tmp_path)))

    def widen(plan):
        plan["studies"][0]["analysis"]["margin"] = 0.05
        plan["studies"][0]["analysis_digest"] = "changed"

    after = text_of(page(build(tmp_path, edit=widen)))
    assert "The analysis plan changed after results existed: margin 0.02 → 0.05." in after
    build(tmp_path / "ruled")
    for module in (analysis_history, methods):
        monkeypatch.setattr(module, "RULES", (*RULES, "2027-01-01: another rule"))
    html = page(build(tmp_path / "ruled"))
    assert "The rules of judging changed after results existed." in text_of(html)
    assert 'class="alert"' not in html


def test_without_results_published_or_studies_there_is_a_page(tmp_path):
    states = {(f"v{i}", seed): "missing" for i in range(4) for seed in range(2)}
    shown = text_of(page(build(tmp_path, [Study(states=states)])))
    assert "No run has logged a curve yet" in shown
    assert "there are no results yet" in shown
    assert "Published numbers" not in shown
    assert "The plan has no studies" in text_of(page(build(tmp_path / "none", [])))


def test_the_same_results_give_the_same_bytes_even_collected_again(tmp_path):
    study = Study("a", seeds=3, states={("v1", 1): "failed"}, published={"v1": {"mean": 0.1}})
    database = build(tmp_path, [study, Study("b", steps=900)])
    first = write_report(database, tmp_path / "first.html").read_bytes()
    time.sleep(1.1)  # of the clock that `created` in the database shows
    collect(tmp_path / "results")
    assert write_report(database, tmp_path / "second.html").read_bytes() == first


def test_the_rows_of_many_variants_are_packed_and_say_the_same(tmp_path, monkeypatch):
    with Store(build(tmp_path, [Study(variants=6)])) as store:
        gathered = read_page(store)
    monkeypatch.setattr("ablation.show.page.inline.MOST_ROWS", 7)  # the reference has a row, too
    few = draw(gathered)
    monkeypatch.setattr("ablation.show.page.inline.MOST_ROWS", 5)
    many = draw(gathered)
    for row in ('id="study-toy-v3"', 'id="study-toy-cmp"', 'class="curves"', 'class="compare"'):
        assert (row in few, row in many, row in unfolded(many)) == (True, False, True)
    assert text_of(unfolded(many)) == text_of(unfolded(few))


def test_studies_stand_in_the_order_of_what_happened_in_them(tmp_path):
    names = ("v0", "v1")
    none = Study("later", variants=2, seeds=1, states={(name, 0): "missing" for name in names})
    some = Study("begun", variants=2, seeds=2, states={(name, 1): "missing" for name in names}, items={"all": 50})
    moved = Study("moved", variants=2, seeds=5, distances={"v1": 0.4}, distance=0.02)
    html = page(build(tmp_path, [none, some, Study("quiet", variants=2), moved]))
    assert re.findall(r'<article class="study" id="study-(\w+)"', html) == ["moved", "quiet", "begun", "later"]
    seen = text_of(html)
    assert "1 change has not run yet. 2 seeds per variant, 50 evaluation items; 2 of 4 runs succeeded" in seen
    assert "1 seed per variant, too few for a verdict; none of 2 runs has started" in seen
    assert re.search(r"\[[−+]0\.\d+, [−+]0\.\d+\] 1 of 2 seeds not run", seen)
    assert "2 ok, 2 not run" in seen


# ---- curves: bins, and what is left out


def test_a_bin_is_the_mean_of_its_finite_values(tmp_path):
    database = build(tmp_path, [Study(steps=10, metrics=1, variants=1, seeds=1)])
    with duckdb.connect(str(database)) as con:
        con.execute("UPDATE metrics SET value = step WHERE name = 'train/m00'")
        con.execute("UPDATE metrics SET value = 'nan' WHERE name = 'train/m00' AND step IN (2, 7, 8, 9)")
    with Store(database) as store:
        definitions = {"toy": store.study("toy")}
        full = plan_curves(store, definitions)
        [metric] = study_curves(store, "toy", definitions["toy"], full)["metrics"]
        assert metric["per_bin"] == 1
        assert metric["steps"] == list(range(1, 11))
        budget = replace(full, bins=4)
        [metric] = study_curves(store, "toy", definitions["toy"], budget)["metrics"]
    assert (metric["per_bin"], metric["logged"], metric["steps"]) == (3, 10, [2, 5, 8, 10])
    [series] = metric["series"]
    assert series[:4] == [0, 0, True, 4]
    assert series[4] == [2, 5, None, 10]


def test_declared_curves_are_never_left_out_and_come_first(tmp_path):
    database = build(tmp_path, [Study(steps=8, metrics=6, seeds=2, variants=2)])
    with Store(database) as store:
        curves = [CurveDefinition(metric="train/m05", label="last"), CurveDefinition(metric="train/m02", label="mid")]
        definitions = {"toy": store.study("toy").model_copy(update={"curves": curves})}
        tight = plan_curves(store, definitions, values=3 * 4 * FEWEST_BINS)  # room for 3 metrics of 4 runs
        shown = study_curves(store, "toy", definitions["toy"], tight)
    names = [(metric["name"], metric["label"]) for metric in shown["metrics"]]
    assert names == [("train/m05", "last"), ("train/m02", "mid"), ("train/m00", "train/m00")]
    assert tight.left_out == {"toy": 3}


def test_of_too_many_seeds_the_first_are_shown(tmp_path):
    database = build(tmp_path, [Study(steps=8, metrics=2, seeds=4, variants=3)])
    with duckdb.connect(str(database)) as con:  # seed 3 came first, seed 1 last
        con.execute("CREATE TABLE planned AS FROM run_stages ORDER BY seed = 1, seed <> 3, rowid")
        con.execute("DELETE FROM run_stages")
        con.execute("INSERT INTO run_stages FROM planned")
        con.execute("DROP TABLE planned")
    with Store(database) as store:
        definitions = {"toy": store.study("toy")}
        assert len(definitions["toy"].curves) == 2
        whole = plan_curves(store, definitions, values=2 * 12 * 8)
        tight = plan_curves(store, definitions, values=2 * 12 * 8 - 1)
        shown = study_curves(store, "toy", definitions["toy"], tight)
        assert (whole.seeds, whole.all_seeds("toy"), tight.seeds, tight.all_seeds("toy")) == (4, True, 3, False)
    for metric in shown["metrics"]:
        assert [series[:2] for series in metric["series"]] == [[v, s] for v in range(3) for s in (0, 2, 3)]
