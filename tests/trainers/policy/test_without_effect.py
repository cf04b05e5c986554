"""A search for settings that do nothing: what it finds must be what `without_effect` refuses, and nothing else."""

from functools import cache
from itertools import product

import pytest
import torch

from ablation.config import dotted
from tests.trainers.policy.helpers import SMALL, objective_of, stage
from trainers.assets_config import Strict
from trainers.objectives.policy import adapt_coefficient
from trainers.policy import evaluate, reinforce, reward_model, task_data, warm_start
from trainers.policy.config import PolicyConfig, WarmStart

# Another value for every key that decides the loss; those of a part are given with the part.
CHANGES = {
    "ratio gspo": {"ratio": "gspo"},
    "ratio product": {"ratio": "product"},
    "ratio gspo_token": {"ratio": "gspo_token"},
    "amic": {"amic": True},
    "clip.clip_low": {"surrogate": {"kind": "clip", "clip_low": 0.05}},
    "clip.clip_high": {"surrogate": {"kind": "clip", "clip_high": 0.05}},
    "clip.dual": {"surrogate": {"kind": "clip", "dual": 1.01}},
    "ema_smoothing": {"ema_smoothing": {"beta": 0.5}},
    "gradient_adaptive": {"gradient_adaptive": {"temperature": 0.5}},
    "temporal_decay": {"temporal_decay": {"gamma": 0.5}},
    "temporal_decay sum": {"temporal_decay": {"normalize": "sum"}},
    "temporal_decay none": {"temporal_decay": {"normalize": "none"}},
    "temporal_decay lspd": {"temporal_decay": {"lspd": {"alpha": 1.0, "tau": 3.0}}},
    "ptrw": {"surrogate": {"kind": "ptrw", "sigma": 0.1}},
    "ptrw detached": {"surrogate": {"kind": "ptrw", "sigma": 0.1, "detach_weight": True}},
    "asymmetric_clip": {"surrogate": {"kind": "asymmetric_clip", "pos": 0.02, "neg": 0.02}},
    "asymmetric_clip both sides": {
        "surrogate": {"kind": "asymmetric_clip", "pos": 0.02, "neg": 0.02, "pessimistic": False}
    },
    "weight_on": {"weight_on": "ratio"},
    "aggregation": {"update": {"aggregation": "token_mean"}},
    "kl.kl_coef": {"kl": {"kl_coef": 0.0}},
    "kl.adaptive": {"kl": {"adaptive": True}},
    "kl.target": {"kl": {"target": 0.5}},
}
# An advantage for every token.
CONTEXTS = {
    "advantage gae": {"advantage": {"kind": "gae"}, "rollout": {"group_size": 1}},
    "level token": {"reward": {"model": 1.0, "level": "token"}, "reward_training": {"enabled": True}},
}
# Equal, and not refused: a theorem that the study `gspo` has a variant for (arXiv 2507.18071, section 4.3), and 2.3
# with 2.4, which takes the mean ratio itself: the source's combination `aggressive` names both.
KNOWN_EQUAL = {
    ("ratio gspo", "ratio gspo_token"),
    ("ratio gspo_token", "ratio gspo"),
    ("ptrw", "amic"),
    ("ptrw detached", "amic"),
}


def configuration(*names):
    """Return the configuration with the changes, later ones over earlier; None where it is refused."""
    values = {}
    for name in names:
        values = dotted.merge(values, (CHANGES | CONTEXTS)[name])
    if values.get("amic") and values.get("ratio", "token") != "token":
        return None  # an exclusion of `_study.yaml`
    try:
        return PolicyConfig(**values)
    except ValueError:
        return None


@cache
def outcome(config):
    """Return loss and gradient on fixed responses, and the KL coefficients that follow on a low and a high KL."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([9, 2, 6, 4, 1, 8, 5, 7])
    mask = (torch.arange(9) < lengths[:, None]).double()
    old = -3 * torch.rand(8, 9, generator=generator, dtype=torch.float64) * mask
    # Responses that have become likelier and less likely, each with good and bad advantages: every bound is met.
    drift = torch.tensor([0.5, 0.5, -0.5, -0.5, 0.1, 0.1, -0.1, -0.1], dtype=torch.float64)[:, None]
    moved = old + drift + 0.1 * torch.randn(8, 9, generator=generator, dtype=torch.float64)
    logps = (moved * mask).requires_grad_(True)
    signs = torch.tensor([1, -1] * 4)[:, None]
    advantages = signs * (0.1 + torch.rand(8, 9, generator=generator, dtype=torch.float64))
    if config.advantage.kind != "gae" and config.reward.level == "sequence":
        advantages = advantages[:, 0]
    loss, _ = objective_of(config)(logps, old, advantages, mask)
    numbers = [loss.detach()[None], torch.autograd.grad(loss, logps)[0].flatten()]
    kl = config.kl
    if kl.adaptive:
        numbers.append(
            torch.tensor(
                [adapt_coefficient(kl.kl_coef, value, target=kl.target) for value in (0.0001, 0.1, 9.0)],
                dtype=torch.float64,
            )
        )
    else:
        numbers.append(torch.full((3,), kl.kl_coef, dtype=torch.float64))
    return torch.cat(numbers)


def changes_nothing(before, after):
    return torch.allclose(outcome(before), outcome(after), rtol=0, atol=1e-12)


def refused(config, change):
    idle = config.without_effect()
    return any(dotted.covers(other, key) for key, _ in dotted.leaves(CHANGES[change]) for other in idle)


def test_of_every_pair_of_settings_exactly_those_without_effect_are_refused():
    """In the presence of one change, another either changes what is computed or is refused."""
    tried, wrong = 0, []
    for context, change in product((None, *CONTEXTS, *CHANGES), CHANGES):
        before = configuration(*filter(None, [context]))
        after = configuration(*filter(None, [context, change]))
        if before is None or after is None or after == before or (context, change) in KNOWN_EQUAL:
            continue
        tried += 1
        if changes_nothing(before, after) != refused(after, change):
            wrong.append((context, change))
    assert tried > 400
    assert not wrong, f"{len(wrong)}, for example {wrong[:12]}"


@pytest.mark.parametrize("ratio", ["gspo", "product"])
@pytest.mark.parametrize("decay", ["temporal_decay", "temporal_decay sum"])
def test_two_kinds_of_weights_together_have_an_effect_where_one_has_none(ratio, decay):
    """The mean of a product is not the product of the means."""
    one, both = (configuration(f"ratio {ratio}", *names) for names in ([decay], [decay, "gradient_adaptive"]))
    assert not changes_nothing(one, both)
    assert not refused(both, "gradient_adaptive")
    assert not refused(both, decay)


STAGES = {
    "grpo": {},
    "ppo": {"advantage": {"kind": "gae"}, "rollout": {"responses": 16, "group_size": 1}},
    "dapo": {"kl": {"kl_coef": 0.0}, "dynamic_sampling": {"max_rounds": 2}, "overlong_penalty": {}},
    "learnt": {
        "reward": {"rule": 0.5, "model": 1.0},
        "reward_training": {"enabled": True, "problems": 10, "samples": 2, "steps": 2, "batch_size": 4},
    },
    "asymmetric": {
        "surrogate": {"kind": "asymmetric_clip"},
        "weight_on": "ratio",
        "gradient_adaptive": {},
        "temporal_decay": {},
    },
}


@pytest.fixture
def reads(monkeypatch):
    """The fields of settings that are read from here on: (name of the model, field)."""
    seen, original = set(), Strict.__getattribute__

    def watched(self, name):
        fields = type(self).model_fields
        if name == "model_dump":
            seen.update((type(self).__name__, field) for field in fields)
        elif name in fields:
            seen.add((type(self).__name__, name))
        return original(self, name)

    monkeypatch.setattr(Strict, "__getattribute__", watched)
    return seen


def leaf_keys(config):
    """Yield (dotted key, name of its model) of every field that is not a part of its own."""
    for name in PolicyConfig.model_fields:
        value = config.__dict__[name]
        if hasattr(type(value), "model_fields"):
            yield from ((f"{name}.{field}", (type(value).__name__, field)) for field in type(value).model_fields)
        else:
            yield name, ("PolicyConfig", name)


@pytest.mark.parametrize("name", STAGES)
def test_what_no_stage_reads_is_refused(prepared, tmp_path, name, reads):
    """A setting that none of the stages looks at cannot have an effect."""
    values = {key: value for key, value in SMALL.items() if key != "kl" or "kl" not in STAGES[name]}
    config = PolicyConfig(**{**values, "steps": 1, **STAGES[name]})
    reads.clear()
    task_data.run(stage(tmp_path / "task_data", config, {}))
    brief = config.model_copy(update={"warm_start": WarmStart(steps=1)})
    warm_start.run(stage(tmp_path / "warm_start", brief, {"task_data": tmp_path / "task_data"}))
    reward_model.run(stage(tmp_path / "reward_model", config, prepared))
    inputs = {**prepared, "trained_reward_model": tmp_path / "reward_model"}
    reinforce.run(stage(tmp_path / "rl", config, inputs, 0))
    evaluate.run(stage(tmp_path / "eval", config, {**inputs, "policy": tmp_path / "rl"}))
    assets = {"model", "reward_model", "data_source"}  # the plan reads these
    unread = {key for key, field in leaf_keys(config) if field not in reads} - assets
    idle = config.without_effect()
    left = {key for key in unread if not any(dotted.covers(other, key) for other in idle)}
    assert not left
    assert unread, "no setting is idle in every variant"
