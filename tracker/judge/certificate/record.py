"""What a certificate holds: per word how often it was wrong, at least and at most, and what follows."""

from typing import Literal

from tracker.config.names import Strict

Status = Literal["calibrated", "uncalibrated", "uncertified"]
SPLITS, SEALED = "splits", "sealed"
SMALL = "small splits"  # into arms of which the word is not said, or not by the same rule as of the study's edges


class Evidence(Strict):
    """How often one word was wrong in trials of one kind."""

    word: str
    kind: str  # splits (A/A), small splits, a form of planted effect, or sealed
    promise: float  # the rate that the word must not exceed
    trials: int
    effective: float  # independent trials that these are worth
    rate: float
    lower: float  # one-sided Clopper-Pearson bound, at a confidence that allows for all kinds of trials
    upper: float  # one-sided, at 95%


class Power(Strict):
    """How often a word was given where it was true."""

    word: str
    level: str  # zero, or mde
    effect: float
    right: int
    trials: int


class Sealing(Strict):
    """What was predicted of seeds and items that the prediction never read, and how often it held."""

    seeds: list[int]
    items: int
    edges: int
    effective: float
    inside: int
    by_word: dict[str, tuple[int, int]]  # inside, edges


class WordRecord(Strict):
    """What is certified of one word."""

    word: str
    status: Status
    why: str


class StudyCertificate(Strict):
    """The certificate of one study."""

    study: str
    digest: str  # of what was read, and of the code that judged it
    seeds: int  # most seeds of a variant
    variants: int
    arm: int  # seeds of a pseudo-arm; 0 where none can be split
    splits: float  # effective splits
    words: list[WordRecord]
    evidence: list[Evidence]
    power: list[Power]
    sealed: Sealing | None

    def status(self, word: str) -> Status:
        """Return the status of a word; uncertified for one that nothing is certified of."""
        return next((record.status for record in self.words if record.word == word), "uncertified")


class Certificates(Strict):
    """All studies of a database, and their common record."""

    studies: list[StudyCertificate]
    record: list[Evidence]
    words: list[WordRecord]

    def of(self, study: str) -> StudyCertificate | None:
        """Return a study's certificate."""
        return next((found for found in self.studies if found.study == study), None)
