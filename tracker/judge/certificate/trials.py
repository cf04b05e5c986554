"""What a pseudo-study of known truth says of the words: each edge's true effect beside the word that it got."""

from dataclasses import dataclass

from tracker.judge.certificate.pseudo import words
from tracker.judge.edges import NOT_COMPARED
from tracker.judge.measurements import Measurements

_EPSILON = 1e-9


@dataclass(frozen=True)
class Level:
    """How large a planted effect is."""

    name: str  # zero, margin or mde
    amount: float  # in units of the statistic


@dataclass(frozen=True)
class Trial:
    """One judged pseudo-study; `unit` is what the noise of two trials must not share for both to count."""

    form: str
    level: str  # zero, margin or mde
    unit: str
    edges: tuple[tuple[float | None, str], ...]  # (true effect, word); None: the truth is not known
    margin: float

    def falsely_equivalent(self) -> list[bool]:
        """Whether each edge whose true effect reaches the margin was called equivalent."""
        return [said == "equivalent" for truth, said in self.edges if truth is not None and self._large(truth)]

    def false_direction(self) -> bool | None:
        """Whether any edge was called better or worse against the truth; None where no truth is known."""
        known = [(truth, said) for truth, said in self.edges if truth is not None]
        wrong = [word == said and self._forbids(word, truth) for truth, said in known for word in ("better", "worse")]
        return any(wrong) if known else None

    def right(self, word: str) -> list[bool]:
        """Whether each edge of which the word is true got it: the pipeline's power."""
        known = [(truth, said) for truth, said in self.edges if truth is not None]
        return [said == word for truth, said in known if not self._forbids(word, truth)]

    def _large(self, truth: float) -> bool:
        return abs(truth) >= self.margin - _EPSILON

    def _forbids(self, word: str, truth: float) -> bool:
        if word == "equivalent":
            return self._large(truth)
        return (truth if word == "better" else -truth) <= _EPSILON


def judged(study: Measurements, truths: dict[str, float | None], *, form: str, level: str, unit: str) -> Trial:
    """Judge a pseudo-study with the study's own pipeline."""
    said = words(study)
    edges = tuple(
        (truth, said[child]) for child, truth in truths.items() if said.get(child, "invalid") not in NOT_COMPARED
    )
    return Trial(form, level, unit, edges, study.analysis.margin)
