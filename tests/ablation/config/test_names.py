"""What a metric's name tells of its better side, and what it does not."""

import pytest

from ablation.config.names import known_direction, suggest


@pytest.mark.parametrize(
    ("names", "direction"),
    [
        ("acc val_acc eval/acc test_accuracy valAcc mmlu_acc F1 rougeL rouge-l BLEU pass@1 pass_at_8", "max"),
        ("reward eval/reward train_reward win_rate success_rate is_correct exact_match eval/mmlu/acc_norm", "max"),
        ("loss eval_loss train/loss valMSE eval_WER val_bpb cross_entropy error_rate word_perplexity ece brier", "min"),
        ("kl toxicity hallucination_rate fpr latency_ms grad_norm val/ce edit_distance cost length refusals", None),
        ("value score brier_like attack_success_rate lossless loss_scale acc_drop reward_std power maturity", None),
    ],
)
def test_only_listed_names_tell_which_values_are_better(names, direction):
    assert [name for name in names.split() if known_direction(name) != direction] == []


def test_a_metric_without_its_phase_is_rather_that_of_the_evaluation():
    known = ["train/epoch_loss", "validation/epoch_loss", "lr"]
    assert suggest("epoch_loss", known).startswith("did you mean 'validation/epoch_loss' or 'train/epoch_loss'? ")
    assert suggest("epoch_los", known).startswith("did you mean 'train/epoch_loss'? ")
    assert suggest("l", ["lr"]) == "did you mean 'lr'? choose from lr"
