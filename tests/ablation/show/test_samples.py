"""Items that changed along a comparison, in words: which are chosen, what is quoted of them, and text from anybody."""

import re
import shutil
import tracemalloc

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.contract.samples import FILE
from ablation.judge.changed_items import find_changed_items
from ablation.judge.stored import read_measurements
from ablation.runner.runlog import write_table
from ablation.show.page import samples as page_samples_module
from ablation.show.page.render import SCRIPTS
from ablation.show.page.samples import differing, page_samples
from ablation.store.collect import collect
from ablation.store.database import Store
from ablation.store.samples import study_samples
from tests.ablation.show.elements import Elements, unfolded, write_report
from tests.simulate import Study, simulate, stage_dir

SEEDS = 3
STUDY = Study(variants=2, seeds=SEEDS, items={"gender": 6, "race": 6})
VALUES = {  # item of gender: values of v0 in the seeds, values of v1
    0: ([0, 0, 0], [1, 1, 1]),  # improved in all
    1: ([0, 0, 1], [1, 1, 1]),  # in two
    2: ([0, 1, 0], [1, 0, 1]),  # in two, and worse in one
    3: ([1, 1, 1], [0, 0, 0]),
    4: ([1, 1, 1], [1, 1, 0]),
    5: ([1, 0, 1], [1, 0, 1]),
}


def run_folder(plan, variant, seed):
    return stage_dir(plan, "toy", variant, seed, "evaluate")


def words(variant, seed, item, subset, **more):
    said = {"prompt": f"asked {item}", "response": f"{variant} said in {seed} to {item}", "reference": "right"}
    return {"item": item, "subset": subset, "protocol": "edited"} | said | more


@pytest.fixture
def plan(tmp_path):
    """Two variants of three seeds, `max` of known values, and words to all items."""
    plan = simulate(tmp_path / "results", [STUDY])
    text = plan.read_text()
    plan.write_text(re.sub(r'"direction": (\{[^}]*\}|"\w+")', '"direction": "max"', text))
    for side, variant in enumerate(("v0", "v1")):
        for seed in range(SEEDS):
            folder = run_folder(plan, variant, seed)
            items = pd.read_parquet(folder / "items.parquet")
            ours = items["protocol"] == "edited"
            for item, values in VALUES.items():
                for subset in ("gender", "race"):
                    # race: the same, but nothing changes from item 3 on
                    value = values[side][seed] if subset == "gender" or item < 3 else 1
                    items.loc[ours & (items["item"] == f"{subset}-{item:04d}"), "value"] = value
            items.to_parquet(folder / "items.parquet", index=False)
            save(folder, [words(variant, seed, f"{s}-{i:04d}", s) for s in ("gender", "race") for i in VALUES])
    return plan


def save(folder, rows):
    pd.DataFrame(rows).to_parquet(folder / FILE, index=False)


def save_in_all(plan, rows):
    """Give every run of both variants its words: rows(variant, seed)."""
    for variant in ("v0", "v1"):
        for seed in range(SEEDS):
            save(run_folder(plan, variant, seed), rows(variant, seed))


def shown(plan):
    with Store(collect(plan.parent).database) as store:
        study = read_measurements(store, "toy")
        return page_samples([(study, [("v0", "v1")], study_samples(store, "toy"))])["toy"].get(("v0", "v1"))


def page_of(plan):
    return unfolded(write_report(collect(plan.parent).database, plan.parent / "index.html").read_text())


def test_items_that_changed_most_come_first(plan):
    with Store(collect(plan.parent).database) as store:
        found = find_changed_items(read_measurements(store, "toy"), "v0", "v1")
    assert (found.seeds, found.better, found.worse) == (3, 6, 2)
    gender = [changed for changed in found.gained if changed.subset == "gender"]
    assert [(changed.item, changed.agreeing, changed.against) for changed in gender] == [
        ("gender-0000", 3, 0),
        ("gender-0001", 2, 0),
        ("gender-0002", 2, 1),
    ]
    assert [changed.item for changed in found.lost] == ["gender-0003", "gender-0004"]
    assert gender[2].values == ((0, 0, 0.0, 1.0), (1, 1, 1.0, 0.0), (2, 2, 0.0, 1.0))
    assert gender[2].change == pytest.approx(1 / 3)
    assert [pair.child_seed for pair in gender[2].telling()] == [0, 2, 1]
    assert found.lost[1].telling()[0].child_seed == 2


def test_a_comparison_quotes_both_variants_in_a_seed_in_which_the_item_changed(plan):
    found = shown(plan)
    assert found.subsets == ["gender", "race"]
    assert [(item.item, item.improved) for item in found.items[:4]] == [
        ("gender-0000", True),
        ("gender-0003", False),
        ("race-0000", True),
        ("gender-0004", False),
    ]
    worse = found.items[3]
    assert (worse.before, worse.after, worse.agreeing, worse.seed) == ("1.000", "0.667", 1, 2)
    assert worse.values == [(0, "1.000", "1.000"), (1, "1.000", "1.000"), (2, "1.000", "0.000")]
    assert worse.common == [("prompt", "asked gender-0004"), ("reference", "right")]
    assert [(variant, [texts for texts, _ in quotes]) for variant, quotes, _ in worse.groups] == [
        ("v0", [[("response", "v0 said in 2 to gender-0004")]]),
        ("v1", [[("response", "v1 said in 2 to gender-0004")]]),
    ]
    assert len(found.items) == 8


def test_words_in_which_a_bit_flipped_are_not_quoted(plan):
    folder, rows = run_folder(plan, "v0", 2), [words("v0", 2, f"gender-{item:04d}", "gender") for item in VALUES]
    path = folder / FILE
    write_table(path, pa.Table.from_pylist(rows))
    group = pq.read_metadata(path).row_group(0)
    end = 4 + sum(group.column(number).total_compressed_size for number in range(group.num_columns))
    whole, said = path.read_bytes(), []
    with Store(collect(plan.parent).database) as store:
        for place in range(4, end, 11):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            samples = study_samples(store, "toy")
            said.append(str(samples.read(("v0", 2), {("gender", "gender-0004")}, 100)))
    path.write_bytes(whole)
    with Store(plan.parent / "tracker.duckdb") as store:
        true = str(study_samples(store, "toy").read(("v0", 2), {("gender", "gender-0004")}, 100))
    assert set(said) <= {true, "{}"}


def test_sentences_that_both_judged_stand_in_one_table_with_the_numbers_of_each(plan):
    def rows(variant, seed):
        after = {"v0": -2.0, "v1": -1.5}[variant]
        return [
            {"item": "gender-0000", "subset": "gender", "protocol": "edited", "sentence": kind}
            | {"response": f"A {kind} one.", "before": -1.0, "after": after - place}
            for place, kind in enumerate(("stereotype", "unrelated"))
        ]

    save_in_all(plan, rows)
    [item] = shown(plan).items
    assert item.columns == ["response", "sentence", "before", "after, v0", "after, v1"]
    assert item.both == [
        ([("response", "A stereotype one."), ("sentence", "stereotype")], ["−1", "−2", "−1.5"]),
        ([("response", "A unrelated one."), ("sentence", "unrelated")], ["−1", "−3", "−2.5"]),
    ]
    assert item.groups == []
    assert "A stereotype one." in Elements(page_of(plan)).text


@pytest.mark.parametrize(
    ("text", "other", "parts"),
    [
        ("I say that it is 4 .", "I say that it is 5 .", ("I say that it is ", "4", " .")),
        ("I say that it is 4 .", "I say that it is 4 .", ("I say that it is 4 .", "", "")),
        ("so it is so it is", "so it is", ("so it is", " so it is", "")),
        ("so it is", "so it is so it is", ("so it is", "", "")),
        ("A quite different text", "and nothing like it", ("A quite different text", "", "")),
        ("", "something", ("", "", "")),
    ],
)
def test_where_two_texts_differ(text, other, parts):
    assert differing(text, other) == parts
    assert "".join(parts) == text


def test_the_words_of_a_command_lie_in_its_output_and_a_moved_project_keeps_them(plan, tmp_path):
    for variant in ("v0", "v1"):
        for seed in range(SEEDS):
            folder = run_folder(plan, variant, seed)
            (folder / "output").mkdir()
            (folder / FILE).rename(folder / "output" / FILE)
    whole = shown(plan)
    assert len(whole.items) == 8
    database = collect(plan.parent).database
    shutil.move(plan.parent, tmp_path / "moved")
    with Store(tmp_path / "moved" / database.name) as store:
        study = read_measurements(store, "toy")
        assert page_samples([(study, [("v0", "v1")], study_samples(store, "toy"))])["toy"]["v0", "v1"] == whole


# ---- text from anybody

HOSTILE = {
    "html": '<script>alert(1)</script><img src=x onerror="alert(2)"></details></section><!--',
    "right to left": "\u202ereversed\u2066 \u05d0\u05d1\u05d2 {{ 7 * 7 }}",
    "noise": "\x00\x07\x1b[31m\x9b\ufffe" + "".join(map(chr, range(1, 32))),
    "long": "begin" + "x" * 1_000_000 + "the end",
    "lines": "first" + "\n" * 5_000 + "last",
    "words without spaces": "w" * 1_500,
}


def test_hostile_text_is_text(plan):
    names = [f"{s}-{i:04d}" for s in ("gender", "race") for i in range(4)]

    def rows(variant, seed):
        return [
            words(variant, seed, item, item[:-5], response=f"{variant}{text}", prompt=text, **{"<b>": text})
            for item, text in zip(names, HOSTILE.values(), strict=False)
        ]

    save_in_all(plan, rows)
    before = page_of(plan)
    page = Elements(before)
    assert [tag for tag, _ in page.tags].count("script") == 1 + len(SCRIPTS)
    assert not [tag for tag, attributes in page.tags if tag == "img" or "onerror" in attributes]
    assert HOSTILE["html"] in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe]", page.text)
    assert "\ufffd\ufffd\ufffd[31m\ufffd\ufffd" in page.text
    cut = re.search(r"begin(x+) \[… ([\d,]+) characters left out …\] (x+)the end", page.text)
    assert len(cut[1]) + len(cut[3]) + int(cut[2].replace(",", "")) == 1_000_000
    assert re.search(r"first\n{40}\[… lines left out …\]\n{20}last", page.text)
    for tag, attributes in page.tags:  # a mark that turns the line stays in its element
        if tag == "dd" and "said" in str(attributes):
            assert attributes["dir"] == "auto"
    assert len(before) < 4_000_000


def truncated(path):
    path.write_bytes(path.read_bytes()[:-40])


def table(**columns):
    whole = {"item": ["gender-0000"], "subset": ["gender"], "protocol": ["edited"]} | columns
    return lambda path: pq.write_table(pa.table({name: of for name, of in whole.items() if of}), path)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (truncated, "arquet"),
        (table(item=None), "column item is missing"),
        (table(item=[1]), "column item occurs more than once or does not hold text"),
        (table(**{f"c{i}": ["x"] for i in range(100)}), "the file has 103 columns, but the limit is 16"),
    ],
)
def test_a_damaged_file_costs_its_words_and_is_told(plan, damage, problem):
    whole = collect(plan.parent)
    damage(run_folder(plan, "v0", 0) / FILE)
    again = collect(plan.parent)
    assert (again.states, again.rows) == (whole.states, whole.rows)  # the stage is as good as it was
    found = shown(plan)
    [note] = found.notes
    assert note.startswith("The texts of v0 (seed 0) cannot be read: ")
    assert problem in note
    assert found.items[0].seed == 1
    assert "cannot be read" in Elements(page_of(plan)).text


def test_many_comparisons_share_what_one_page_may_quote(tmp_path, monkeypatch):
    monkeypatch.setattr(page_samples_module, "BUDGET", 150_000)
    plan = simulate(tmp_path / "results", [Study(variants=12, seeds=2, items={"gender": 40})])
    for variant in range(12):
        for seed in range(2):
            rows = [words(f"v{variant}", seed, f"gender-{i:04d}", "gender", prompt="p" * 9_000) for i in range(40)]
            save(run_folder(plan, f"v{variant}", seed), rows)
    with Store(collect(plan.parent).database) as store:
        study = read_measurements(store, "toy")
        comparisons = [(variant.parent, variant.name) for variant in study.variants if variant.parent]
        tracemalloc.start()
        found = page_samples([(study, comparisons, study_samples(store, "toy"))])["toy"]
        assert tracemalloc.get_traced_memory()[1] < 60e6
        tracemalloc.stop()
    assert len(found) == 11
    for comparison in found.values():
        assert sum(item.length for item in comparison.items) < 150_000 / 11 + page_samples_module.MARKUP
        assert {item.improved for item in comparison.items} == {True, False}
