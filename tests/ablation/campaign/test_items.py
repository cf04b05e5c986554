"""A run that writes a value for each item: their mean is its value, and all runs are of the same items."""

import json

import pytest

from tests.ablation.campaign.conftest import INIT, MORE

# Item 0 has all of the gain; each item has noise of its own by the seed.
TRAIN = """
awk -v s=$2 -v g=$(cat gain) 'BEGIN { print "item,score"; for (i = 0; i < 4; i++) {
  x = sin((s + 1) * 12.9898 + i) * 43758.5453; print i "," i + (i ? 0 : 4 * g) + x - int(x) } }' > items.csv
"""


@pytest.fixture
def items(loop):
    loop.write("train.sh", TRAIN)
    loop.commit()
    loop.begin("--items", "items.csv")
    return loop


def tried(loop, script):
    loop.write("train.sh", script)
    loop.commit()
    return loop.attempt()


def test_the_mean_over_items_is_judged_and_the_report_names_those_that_changed(items):
    runs = [json.loads(line) for line in items.ledger()[1:]]
    assert [run["items"]["count"] for run in runs] == [4, 4, 4]
    kept = json.loads((items.folder / ".git/ablation-campaign/logs/base-0.json").read_text())
    assert runs[0]["value"] == pytest.approx(sum(kept.values()) / 4)
    assert len({run["items"]["ids"] for run in runs}) == 1
    assert len({run["items"]["sha256"] for run in runs}) == 3
    status, out, _ = items.attempt(5)
    assert (status, "step 1: verified, " in out) == (0, True), out
    told = json.loads(items.say("campaign", "--json")[1])
    changed = told["changed_items"][told["champions"]["verified"]["commit"]]
    assert changed == {"0": pytest.approx(20)}  # pairs share a seed, and with it the noise of items
    assert "items that changed most in " in items.say("campaign")[1]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (
            ("i < 4", "i < 3"),
            13,
            "has other items (3 items) than the baseline (4 items); evaluate the same items",
        ),
        (
            ('print i ","', 'print i + 1 ","'),
            13,
            "has other items (4 items) than the baseline (4 items); evaluate the same items",
        ),
        (
            ("> items.csv", "> items.csv; tail -1 items.csv >> items.csv"),
            13,
            "refused: items.csv: item: item 3",
        ),
        (
            ("> items.csv", "> items.csv; echo 4,nan >> items.csv"),
            13,
            "refused: the command wrote no number for 1 item (the first is 4)",
        ),
        (("> items.csv", "> other.csv"), 12, "did not write items.csv"),
        (("item,score", "item,loss"), 13, "refused: items.csv"),
    ],
)
def test_other_items_are_no_trial(items, change, status, said):
    found, out, _ = tried(items, TRAIN.replace(*change))
    assert (found, said in out) == (status, True), out


def test_a_baseline_of_other_items_each_time_cannot_begin(loop):
    loop.write("train.sh", TRAIN.replace("i < 4", "i < 4 + s"))
    loop.commit()
    status, _, err = loop.say(*INIT, *MORE, "--items", "items.csv")
    assert (status, "wrote different items than in the first run" in err) == (2, True), err
