"""What the config model of study `debias` knows of changes that cannot matter."""

import pytest

from tests.trainers.debias.helpers import config

V8 = {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.0, 1.0, 2.0]}


def unseen_changes(change, batch_size=32, n_edits=128, parent=V8, n_epochs=100):
    common = {"edit": {"n_edits": n_edits, "batch_size": batch_size}, "grpo": {"weight": 0.3}, "n_epochs": n_epochs}
    child = config(**common, rcs={**parent, **change})
    return child.unseen_changes(config(**common, rcs=parent))


def test_thresholds_between_the_same_steps_of_ss_cannot_matter():
    # SS of 32 items moves by 1/32: |SS - 0.5| is 0, 0.031, 0.063, ...; both pairs lie in the same gaps
    assert list(unseen_changes({"thresholds": [0.015, 0.04]})) == ["rcs.thresholds"]
    reason = unseen_changes({"thresholds": [0.015, 0.04]})["rcs.thresholds"]
    assert "32 items can only be 0, 0.03125, 0.0625" in reason
    assert unseen_changes({"thresholds": [0.02, 0.07]}) == {}  # 0.0625 becomes moderate
    assert unseen_changes({"thresholds": [0.015, 0.04]}, batch_size=128) == {}  # 2/128 lies between 0.015 and 0.02
    assert unseen_changes({"thresholds": [0.015, 0.04]}, batch_size=31) == {}  # 15/31 is 0.016 away
    # 40 items in batches of 32 leave 8 of their own: steps of 0.125, no difference either
    assert list(unseen_changes({"thresholds": [0.015, 0.04]}, n_edits=40)) == ["rcs.thresholds"]
    assert unseen_changes({"thresholds": [0.015, 0.04]}, n_edits=63) == {}  # the 31 that are left can tell


def phase(after, high):
    return {"after": after, "thresholds": [0.02, 0.05], "alphas": [0.0, 1.0, high]}


def test_a_phase_that_never_begins_cannot_matter():
    later = {"schedule": [phase(0.6, 2.5)]}
    assert unseen_changes(later, n_epochs=4) == {}  # the fourth epoch begins at 0.75
    assert unseen_changes(later, n_epochs=3) == {}  # the third at 0.667
    assert list(unseen_changes(later, n_epochs=2)) == ["rcs.schedule"]  # at 0 and 0.5
    assert list(unseen_changes(later, n_epochs=1)) == ["rcs.schedule"]
    assert "epochs begin only at 0, 0.5" in unseen_changes(later, n_epochs=2)["rcs.schedule"]


def test_a_phase_that_acts_as_the_one_before_cannot_matter():
    assert list(unseen_changes({"schedule": [phase(0.3, 2.0)]})) == ["rcs.schedule"]
    # within the steps of 16 items: 0.02, 0.05 and 0.01, 0.06 act alike, and the middle alpha is never used
    alike = {"after": 0.3, "thresholds": [0.01, 0.06], "alphas": [0.0, 7.0, 2.0]}
    assert list(unseen_changes({"schedule": [alike]}, batch_size=16)) == ["rcs.schedule"]
    assert list(unseen_changes({"schedule": [alike]}, batch_size=32)) == ["rcs.schedule.thresholds"]  # 7 acts


def test_two_changes_that_matter_together_only_are_not_called_unseen():
    # thresholds alone: a middle band with the outer alpha; alphas alone: a band that is not used
    parent = {"mode": "adaptive", "thresholds": [0.02, 0.025], "alphas": [0.0, 2.0, 2.0]}
    both = {"thresholds": [0.02, 0.05], "alphas": [0.0, 1.0, 2.0]}
    assert unseen_changes(both, parent=parent) == {}


def test_each_value_is_asked_by_itself():
    """v8.1 of the notes: of its four changes the two of the thresholds never act, those of the strengths do."""
    assert list(unseen_changes({"thresholds": [0.015, 0.04], "alphas": [0.0, 1.2, 2.5]})) == ["rcs.thresholds"]
    # 0.03125 leaves the middle: the upper threshold acts, the lower one does not
    assert list(unseen_changes({"thresholds": [0.015, 0.03], "alphas": [0.0, 1.2, 2.5]})) == ["rcs.thresholds.0"]
    # of 8 items: 0, 0.125, ...: nothing ever lies in the middle
    alphas = unseen_changes({"alphas": [0.0, 1.2, 2.5]}, batch_size=8, n_edits=8)
    assert list(alphas) == ["rcs.alphas.1"]
    assert unseen_changes({"alphas": [0.0, 1.2, 2.5]}) == {}
    # either of two changes alone has the effect of both: none of them is idle
    parent = {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.0, 1.0, 2.0]}
    assert unseen_changes({"thresholds": [0.02, 0.03], "alphas": [0.0, 2.0, 2.0]}, parent=parent) == {}


def test_thresholds_of_phases_are_asked_by_themselves():
    """v9 of the notes: 0.018 and 0.045, 0.015 and 0.04 act as 0.02 and 0.05; only the strengths grow."""
    phases = [
        {"after": 0.3, "thresholds": [0.018, 0.045], "alphas": [0.0, 1.1, 2.2]},
        {"after": 0.6, "thresholds": [0.015, 0.04], "alphas": [0.0, 1.2, 2.5]},
    ]
    assert list(unseen_changes({"schedule": phases})) == ["rcs.schedule.thresholds"]
    assert unseen_changes({"schedule": phases}, batch_size=128) == {}
    wider = [phases[0] | {"thresholds": [0.018, 0.07]}]
    assert unseen_changes({"schedule": wider}) == {}


@pytest.mark.parametrize("parent", [{"mode": "off"}, V8])
def test_nothing_is_said_where_nothing_changes_or_all_does(parent):
    child = config(grpo={"weight": 0.3}, rcs=V8)
    assert child.unseen_changes(config(grpo={"weight": 0.3}, rcs=parent)) == {}


def test_without_editing_only_what_is_measured_matters():
    idle = config(editing=False).without_effect()
    assert {"lr", "loc_coef", "grpo", "early_stop", "editor"} <= idle.keys()
    assert not {"model", "data", "split", "domains", "edit", "editing"} & idle.keys()
    assert config().without_effect().keys() == {"grpo.reward", "grpo.beta", "grpo.gamma"}


def test_what_is_said_is_what_the_curriculum_does():
    """Brute force: alike for every SS that a batch can have, by the module that training uses."""
    from trainers.objectives.curriculum import rcs_alpha

    for low, high in [(0.015, 0.04), (0.02, 0.07), (0.0, 0.05), (0.03125, 0.05), (0.04, 0.06)]:
        distances = [abs(count / 32 - 0.5) for count in range(33)]
        alike = all(
            rcs_alpha(d, (low, high), V8["alphas"]) == rcs_alpha(d, (0.02, 0.05), V8["alphas"]) for d in distances
        )
        assert ("rcs.thresholds" in unseen_changes({"thresholds": [low, high]})) == alike, (low, high)
