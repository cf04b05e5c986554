"""How near a response is to the teacher's: chrF2 (character n-gram F-score, Popović 2015), by sacreBLEU."""

from collections.abc import Sequence

from sacrebleu.metrics import CHRF

_CHRF = CHRF()  # sacreBLEU's defaults: character 6-grams, beta 2, no word n-grams


def chrf(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return a number in [0, 1] for each response: 1 if it is its reference, 0 if they share no character."""
    pairs = zip(responses, references, strict=True)
    return [_CHRF.sentence_score(response, [reference]).score / 100 for response, reference in pairs]
