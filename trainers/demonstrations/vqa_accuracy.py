"""Accuracy of visual question answering as in the official evaluation (arXiv 1505.00468), which OK-VQA uses too.

An answer and those of the annotators are normalised: lower case, no punctuation, number words as digits, no articles,
contractions with their apostrophes. Accuracy is min(matches / 3, 1).
"""

import itertools
import re
from collections.abc import Sequence

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_PERIOD = re.compile(r"\.(?!\d)")  # not the point of a decimal number; a full stop after one is dropped
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_DIGITS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
} | {"none": "0"}
_ARTICLES = frozenset({"a", "an", "the"})
# Written without their apostrophes by annotators. Left out: what is another word without it (its, were, ill).
_CONTRACTIONS = """
ain't aren't can't couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd've he's how'd how's
i'm i've isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've o'clock oughtn't
shan't she'd've she's should've shouldn't shouldn't've somebody's someone's something's that'd that's there'd there're
there's they'd they'd've they'll they're they've 'twas wasn't we've weren't what'll what're what's what've when's
where'd where's where've who'd who'll who's who've why'll why're why's won't would've wouldn't wouldn't've y'all you'd
you'd've you'll you're you've
"""


def _without_apostrophes(word: str) -> set[str]:
    """Return the word with any non-empty set of its apostrophes left out."""
    places = [index for index, letter in enumerate(word) if letter == "'"]
    spellings = set()
    for count in range(1, len(places) + 1):
        for dropped in itertools.combinations(places, count):
            spellings.add("".join(letter for index, letter in enumerate(word) if index not in dropped))
    return spellings


_RESTORED = {spelling: word for word in _CONTRACTIONS.split() for spelling in _without_apostrophes(word)}


def normalise(answer: str) -> str:
    """Return the answer as it is compared: the official steps, punctuation first, then words."""
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    return _words(_punctuation(text))


def _punctuation(text: str) -> str:
    """Drop a mark that touches a space, or any if there is a number like 1,000; else put a space in its place."""
    result = text
    for mark in _PUNCTUATION:
        touches = f"{mark} " in text or f" {mark}" in text or _COMMA_IN_NUMBER.search(text) is not None
        result = result.replace(mark, "" if touches else " ")
    return _PERIOD.sub("", result)


def _words(text: str) -> str:
    words = [_DIGITS.get(word, word) for word in text.lower().split()]
    return " ".join(_RESTORED.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(answer: str, annotators: Sequence[str], *, leave_one_out: bool = False) -> float:
    """Return min(matches / 3, 1) of `answer` with the annotators' answers, all normalised.

    leave_one_out: the mean of that over the annotators left out one by one, as the official script averages; with ten
    annotators 1, 2, 3, 4 matches give 0.3, 0.6, 0.9, 1.

    Raises ValueError where there are no annotators.
    """
    if not annotators:
        raise ValueError("a question without annotators' answers has no accuracy")
    given = normalise(answer)
    matches = [given == normalise(other) for other in annotators]
    if not leave_one_out or len(matches) == 1:
        return min(sum(matches) / 3, 1.0)
    return sum(min((sum(matches) - match) / 3, 1.0) for match in matches) / len(matches)
