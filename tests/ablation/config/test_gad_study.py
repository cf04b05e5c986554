"""The study gad: what variants share, its comparisons, its rules against the source's table, all scales."""

import shutil

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.contract.health import evaluate, parse_rules
from tests.make_stage import part_names, parts_of
from tests.repository import ROOT
from trainers.gad.config import GadConfig


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("extends: d-original\nwhy: a test\ndiscriminator: {kind: v1, max_margin: 7.0}\n", "max_margin"),
        ("extends: d-original\nwhy: a test\npooling: mean\n", "raw scores"),
    ],
)
def test_a_setting_that_is_not_read_is_refused(tmp_path, text, problem):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "configs/studies/gad/wrong.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_studies(load_settings({"studies": "gad"}, configs=tmp_path / "configs"))


def test_a_variant_uses_exactly_the_modules_of_its_objective():
    original, final = GadConfig(discriminator={"kind": "original"}), GadConfig()
    differ = part_names(final, "gad").items() ^ part_names(original, "gad").items()
    assert {slot for slot, _ in differ} == {"discriminator"}
    assert part_names(final, "evaluate").keys() == {"task"}
    assert all(callable(part) for part in parts_of(final, "warmup").values())


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        ({"seqkd": {"enabled": False}}, "seqkd.lr"),
        ({"warmup": {"enabled": False}}, "warmup.critic_warmup"),
        ({"gad": {"enabled": False}}, "gad.kl_coef"),
        ({"warmup": {"enabled": False}, "gad": {"enabled": False}}, "discriminator"),
        ({"warmup": {"student": "cross_entropy"}}, "warmup.kl_coef"),
    ],
)
def test_what_nothing_reads_is_known_to_have_no_effect(values, idle):
    assert idle in GadConfig(**values).without_effect()


# --- rules: the GAD notes, section 19 -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rules():
    study = load_studies(load_settings({"studies": "gad", "scale": "demo"}))["gad"]
    return parse_rules(rule.model_dump() for rule in study.written.health)


def tripped(rules, severity, steps=10, stage="gad", first=16, **series):
    points = {name: [(step, value) for step in range(first, first + steps)] for name, value in series.items()}
    return {event.rule.id for event in evaluate([rule for rule in rules if rule.stage == stage], points)} & {
        rule.id for rule in rules if rule.severity == severity
    }


LENGTHS = {"response_length/teacher": 20.0, "response_length/teacher_p99": 22.0}
HEALTHY = {
    "critic/d_acc": 0.6,
    "critic/score_diff": 0.1,
    "critic/diff_limit": 1.0,
    "critic/missing_warmup_steps": 0,
    "critic/ranking_loss": 0.67,
    "critic/same_text_diff": 0.0,
    "critic/diff_penalty": 0.01,
    "critic/grad_norm": 0.1,
    "critic/prior_steps": 15,
    "critic/d_loss": 1.0,
    "actor/pg_loss": -0.01,
    "actor/pg_clipfrac": 0.1,
    "actor/ppo_kl": 0.001,
    "actor/grad_norm": 1.0,
    "reward/zero_std_groups": 0.1,
    "response_length/mean": 20.0,
    "response_length/clip_ratio": 0.1,
    "response_length/limit": 22.0,
    "rollout/logp_gap": 1e-6,
    "rollout/logp_gap_limit": 1e-3,
    **LENGTHS,
}


@pytest.mark.parametrize("stage", ["warmup", "gad"])
def test_a_healthy_run_trips_nothing(rules, stage):
    for severity in ("note", "warn", "abort"):
        assert not tripped(rules, severity, stage=stage, **HEALTHY)


@pytest.mark.parametrize(
    ("metric", "value", "rule"),
    [
        ("critic/d_acc", 0.91, "critic-too-strong"),
        ("critic/d_acc", 0.49, "critic-too-weak"),
        ("critic/score_diff", 1.1, "difference-too-large"),
        ("critic/score_diff", 0.0005, "no-separation"),
        ("critic/ranking_loss", 0.6931472, "cannot-separate"),
        ("critic/diff_penalty", 0.11, "over-confident"),
        ("critic/grad_norm", 0.009, "critic-gradient-vanished"),
        ("critic/same_text_diff", 0.02, "same-text"),
        ("critic/prior_steps", 0, "warmup-skipped"),
        ("reward/zero_std_groups", 1.0, "no-learning-signal"),
        ("actor/pg_clipfrac", 0.51, "updates-too-aggressive"),
        ("actor/ppo_kl", 0.0, "policy-not-updated"),
        ("response_length/mean", 31.0, "length-grows"),
        ("response_length/mean", 1.0, "length-collapses"),
        ("response_length/clip_ratio", 0.81, "truncated"),
        ("response_length/limit", 66.0, "limit-above-teacher"),
        ("response_length/limit", 18.0, "limit-below-teacher"),
        ("critic/missing_warmup_steps", 3, "warmup-too-short"),
        ("rollout/logp_gap", 0.0011, "sampler-differs"),
    ],
)
def test_each_fault_of_the_table_is_warned_of_by_its_rule(rules, metric, value, rule):
    assert tripped(rules, "warn", **{**HEALTHY, metric: value}) == {rule}


def test_stale_rollouts_end_the_run(rules):
    assert tripped(rules, "abort", **{**HEALTHY, "rollout/logp_gap": 0.6}) == {"stale-rollouts"}
