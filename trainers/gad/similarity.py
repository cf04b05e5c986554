"""How near a response is to the teacher's: chrF2 by sacreBLEU, and ROUGE-L."""

import re
from collections.abc import Sequence

from sacrebleu.metrics import CHRF

_CHRF = CHRF()  # sacreBLEU's defaults: character 6-grams, beta 2, no word n-grams (Popović 2015)
_CHARACTER = "\u3040-\u30ff\u4e00-\u9fff"  # of a script without spaces: each is a word
_WORDS = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")


def chrf(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return a number in [0, 1] for each response: 1 if it is its reference, 0 if they share no character."""
    pairs = zip(responses, references, strict=True)
    return [_CHRF.sentence_score(response, [reference]).score / 100 for response, reference in pairs]


def rouge_l(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return ROUGE-L (Lin 2004) in [0, 1] for each response: the F1 of the longest common subsequence of words.

    Words are lower-case runs of letters and digits; a Chinese or Japanese character is one.
    """
    pairs = zip(responses, references, strict=True)
    return [_f1(_WORDS.findall(one.lower()), _WORDS.findall(other.lower())) for one, other in pairs]


def _f1(words: Sequence[str], others: Sequence[str]) -> float:
    longest = [0] * (len(others) + 1)  # common to the words so far and the first j others
    for word in words:
        before = longest.copy()
        for j, other in enumerate(others):
            longest[j + 1] = before[j] + 1 if word == other else max(before[j + 1], longest[j])
    return 2 * longest[-1] / max(len(words) + len(others), 1)
