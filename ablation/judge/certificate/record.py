"""The content of a certificate: per verdict how often it was wrong, at least and at most, and the conclusion."""

from typing import Literal

from ablation.config.names import Strict

Status = Literal["calibrated", "uncalibrated", "uncertified"]


class Evidence(Strict):
    """How often one word was wrong in worlds of one form."""

    word: str  # better or worse, equivalent, or interval
    form: str
    promise: float  # the rate that the word must not exceed
    trials: int  # worlds for better or worse, edges for the others
    rate: float
    lower: float  # one-sided bound, at a confidence corrected for all bounds
    upper: float  # one-sided, at 95%


class Power(Strict):
    """How often a word was given where it was true."""

    word: str
    effect: float
    right: int
    trials: int


class WordRecord(Strict):
    """The certificate of one verdict."""

    word: str
    status: Status
    why: str


class StudyCertificate(Strict):
    """The certificate of one study."""

    study: str
    digest: str  # of what was read, and of the code that judged it
    seeds: int  # most seeds of a variant
    variants: int
    lineages: int  # judged of each form that carries noise
    words: list[WordRecord]
    evidence: list[Evidence]
    power: list[Power]

    @property
    def said(self) -> str:
        """The study's certificate in a few words."""
        wrong = [record.word for record in self.words if record.status == "uncalibrated"]
        known = f"calibrated on this study's residuals ({self.lineages} lineages)"
        return f"uncalibrated: {', '.join(wrong)}" if wrong else known if self.evidence else "uncertified"


class Certificates(Strict):
    """All studies of a database."""

    studies: list[StudyCertificate]

    def of(self, study: str) -> StudyCertificate | None:
        """A study's certificate."""
        return next((found for found in self.studies if found.study == study), None)
