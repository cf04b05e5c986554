"""Definitions that the schemas of the configuration share: valid names, directions of metrics, and the base model."""

import difflib
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError

_Each = TypeVar("_Each", bound=Hashable)
RESERVED_KEYS = ("extends", "why", "label", "gpu", "between")  # of a variant file; no config model may have them
NO_VARIANT = "the variant does not exist"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Metrics whose better side nobody disputes, alone or as the last words of a name: val_acc, eval/mmlu/acc, valMSE.
_LARGER = _listed(
    "acc accuracy acc_norm balanced_accuracy exact_match em f1 macro_f1 micro_f1 f1_macro f1_micro precision recall "
    "auc auroc roc_auc average_precision mcc iou miou dice bleu sacrebleu chrf rouge rouge1 rouge2 rouge_l rouge_lsum "
    "meteor bertscore ndcg mrr psnr ssim"
)
_SMALLER = _listed(
    "loss losses perplexity ppl nll bpb bpc bits_per_byte bits_per_character cross_entropy error error_rate err wer "
    "cer ter mae mse rmse regret ece brier brier_score fid"
)
# Alone or after the name of a split only: the success of an attack is not good.
_LARGER_ALONE = _listed(
    "reward rewards mean_reward episode_reward ep_rew_mean episode_return win_rate success success_rate pass_rate "
    "solve_rate passed resolved correct is_correct"
)
_PASSES = re.compile(r"(pass|maj|cons)(@|_?at_?)?\d+")
_SPLITS = _listed("train training val valid validation dev eval evaluation test mean avg final")
_WORDS = re.compile(r"[^A-Za-z0-9@]+|(?<=[a-z0-9])(?=[A-Z])")


def is_safe_name(name: str) -> bool:
    """Return whether a name may name a folder: up to 100 of `A-Za-z0-9._-`, no `..`, and no `.` or `-` at its start."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= 100


def suggest(name: str, known: Iterable[object], what: str = "") -> str:
    """Return the remedy for an unknown name: the closest known name, if any, and all known names, headed by `what`."""
    names = [one_line(other, 200) for other in known]
    listing = f"{what}: {listed(names, 25)}" if what else f"choose from {listed(names, 25)}"
    if not names:
        return f"{what or 'known'}: none"
    # Loggers prefix the phase; a name without a phase more likely means the evaluation than the training.
    ends = [other for other in names if re.fullmatch(rf".*[/._-]{re.escape(str(name)[:200])}", other)]
    if len(ends) > 1:
        ends.sort(key=lambda other: re.search(r"(?i)(?<![a-z])train", other) is not None)
        return f"did you mean {' or '.join(map(repr, ends[:3]))}? {listing}"
    close = difflib.get_close_matches(str(name)[:200], names, n=1)  # a very long name would take minutes
    return f"did you mean {close[0]!r}? {listing}" if close else listing


def known_direction(metric: str) -> Literal["max", "min"] | None:
    """Return `max` or `min`, whichever is better, for a metric with a well-known name; None for any other name.

    A guess from other names could reverse verdicts: a rise of `kl`, `toxicity` or `latency_ms` is not an improvement.
    """
    words = [word.lower() for word in _WORDS.split(metric.rpartition("/")[2]) if word]
    ends = {"_".join(words[start:]) for start in range(len(words))}
    if ends & _SMALLER:
        return "min"
    alone = "_".join(words[next((n for n, word in enumerate(words) if word not in _SPLITS), 0) :])
    return "max" if ends & _LARGER or alone in _LARGER_ALONE or _PASSES.fullmatch(alone) else None


def check_name(name: str, known: Iterable[str], file: Path | str, key: str, problem: str) -> None:
    """Raise ConfigError, with the closest known name as a suggestion, if a name is not among the known ones."""
    names = list(known)
    if name not in names:
        raise ConfigError(file, key, name, problem, suggest(name, names))


def distinct(values: tuple[_Each, ...]) -> tuple[_Each, ...]:
    """Return the values unchanged. Raises ValueError if two of them are equal."""
    if len(set(values)) != len(values):
        raise ValueError("contains a value twice; list each value once")
    return values


def _simple(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("must consist of lower-case letters, digits and underscores, and start with a letter")
    return name


def _dotted(path: str) -> str:
    if not all(part.isidentifier() for part in path.split(".")):
        raise ValueError("must be a dotted module path, such as package.module")
    return path


StageName = Annotated[str, AfterValidator(_simple)]
Module = Annotated[str, AfterValidator(_dotted)]
Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """Base of the configuration's models, which refuse unknown keys and whose instances cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
