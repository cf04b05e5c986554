"""Imported runs are watched by the names that their frameworks log; a verdict says what was found."""

import json

import pytest

from tests.ablation.store.imports.test_importing import trainer_run
from tests.ablation.typed import output, refused

HEALTHY = {
    "rollout_corr/kl": 0.001,
    "sampling/sampling_logp_difference/mean": 0.01,
    "debug/vllm_vs_local_logprob_diff_mean": 0.006,
    "train/token_mult_prob_error": 1.02,
    "entropy": 1.0,
    "actor/pg_clipfrac": 0.02,
    "frac_reward_zero_std": 0.2,
    "completions/clipped_ratio": 0.05,
}
BROKEN = {
    "rollout_corr/kl": (-0.3, "sampler-drift"),
    "sampling/sampling_logp_difference/mean": (0.5, "sampler-difference"),
    "debug/vllm_vs_local_logprob_diff_mean": (0.5, "sampler-difference-vllm"),
    "train/token_mult_prob_error": (1.4, "sampler-error"),
    "entropy": (0.01, "entropy-trl"),
    "actor/pg_clipfrac": (0.7, "clip-fraction"),
    "frac_reward_zero_std": (0.95, "equal-rewards"),
    "completions/clipped_ratio": (0.9, "cut-completions"),
}


@pytest.mark.parametrize("metric", [None, *BROKEN])
def test_a_verdict_on_imported_runs_names_the_rule(tmp_path, capsys, monkeypatch, metric):
    monkeypatch.chdir(tmp_path)
    for variant, level in (("base", 0.5), ("new", 0.7)):
        for seed in range(3):
            lines = []
            for step in range(1, 9):
                values = HEALTHY | {"reward": level + 0.01 * ((seed * 7 + step) % 5)}
                if variant == "new" and metric and step > 4:
                    values[metric] = BROKEN[metric][0]
                lines.append({"step": step, **values})
            trainer_run(tmp_path / "runs" / variant / f"seed_{seed}", lines)
    plan = ("--metric", "reward", "--direction", "max", "--margin", "0.01")
    output(capsys, "import", "trainer_state", "runs", "--study", "rl", *plan, status=0)
    [comparison] = json.loads(output(capsys, "verdicts", "rl", "--json", status=0))["rows"]
    said = [f"unhealthy (warn): {BROKEN[metric][1]}: ", "(new seed 0, new seed 1, new seed 2)"] if metric else []
    assert all(part in comparison["reason"] for part in said)
    assert comparison["reason"].count("unhealthy") == len(said) / 2


def test_one_run_under_two_seeds_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variant, level in (("base", 0.5), ("new", 0.7)):
        for seed in range(3):
            told = 1 if (variant, seed) == ("new", 2) else seed  # whose time and learning rate say nothing
            logged = [
                {
                    "step": n,
                    "reward": level + 0.01 * ((told * 7 + n) % 5),
                    "step_time": seed + n,
                    "learning_rate": 1 / n,
                }
                for n in range(1, 13)
            ]
            trainer_run(tmp_path / "runs" / variant / f"seed_{seed}", logged)
    words = ("import", "trainer_state", "runs", "--study", "rl", "--metric", "reward", "--direction", "max")
    said = refused(capsys, *words, "--margin", "0.01")
    assert "new/seed_1 and new/seed_2 logged the same values at every step, so one may be a copy" in said
    output(capsys, *words, "--margin", "0.01", "--map", "leave_out=new/seed_2", status=0)
