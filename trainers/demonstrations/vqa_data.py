"""Questions about images in the official files of OK-VQA and VQAv2, and the official accuracy of answers."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTIONS, ANNOTATIONS = "_questions.json", "_annotations.json"


@dataclass(frozen=True)
class VisualQuestion:
    """Question about an image, with the answers of its annotators."""

    id: str
    question: str
    image: Path
    answers: list[str]

    @property
    def answer(self) -> str:
        """Return the annotators' most frequent answer."""
        return Counter(self.answers).most_common(1)[0][0]


@dataclass(frozen=True)
class VisualData:
    """Questions of the training split and of the evaluation split."""

    training: list[VisualQuestion]
    evaluation: list[VisualQuestion]


def read_data(folder: Path, images: Path) -> VisualData:
    """Return the questions in a folder with the official files of a training split and an evaluation split.

    Their names end in `mscoco_<split>_questions.json` and `mscoco_<split>_annotations.json`. An image is
    `COCO_<split>_<12 digits>.jpg` in `images` or in its subfolder `<split>`. Raises ValueError, with the file or the
    question, if something is missing or wrong.
    """
    splits = {_split(path): path for path in sorted(folder.glob(f"*{QUESTIONS}"))}
    training = [split for split in splits if split.startswith("train")]
    others = [split for split in splits if not split.startswith("train")]
    if len(training) != 1 or len(others) != 1:
        found = ", ".join(splits) or "none"
        needed = f"must have *{QUESTIONS} of one training split and one other split"
        raise ValueError(f"{folder} {needed}, but has {found}; add or remove files")
    first, second = (read_official(splits[split], images, split) for split in (training[0], others[0]))
    if twice := {question.id for question in first} & {question.id for question in second}:
        raise ValueError(f"{folder}: question {min(twice)} is in both splits; remove it from one of them")
    return VisualData(first, second)


def _split(path: Path) -> str:
    """Return the split in an official file name, such as train2014 in `OpenEnded_mscoco_train2014_questions.json`."""
    match = re.search(r"mscoco_([a-z0-9-]+)_(questions|annotations)\.json$", path.name)
    if match is None:
        problem = "the file name is not an official one"
        raise ValueError(f"{path}: {problem}; end it in mscoco_<split>{QUESTIONS} or mscoco_<split>{ANNOTATIONS}")
    return match[1]


def read_official(path: Path, images: Path, split: str) -> list[VisualQuestion]:
    """Return the questions of an official file in its order, with the answers from the annotations in the same folder.

    Raises ValueError, with file and question, if annotations or an image are missing or a question occurs twice.
    """
    annotations = [other for other in path.parent.glob(f"*{ANNOTATIONS}") if _split(other) == split]
    if len(annotations) != 1:
        name = f"*mscoco_{split}{ANNOTATIONS}"
        raise ValueError(f"{path.parent} must have exactly one {name}, but has {len(annotations)}; add or remove files")
    answers = {str(row["question_id"]): row for row in _rows(annotations[0], "annotations", ("question_id", "answers"))}
    questions: dict[str, VisualQuestion] = {}
    for row in _rows(path, "questions", ("question_id", "image_id", "question")):
        number = str(row["question_id"])
        where = f"{path}, question {number}"
        if number in questions:
            raise ValueError(f"{where}: the question occurs twice; remove one")
        if number not in answers:
            raise ValueError(
                f"{where}: the annotation is missing in {annotations[0].name}; add it, or remove the question"
            )
        annotated = [str(answer["answer"]) for answer in answers[number]["answers"]]
        image = _image(images, split, int(row["image_id"]), where)
        if not annotated:
            raise ValueError(f"{where}: the annotation has no answers; add them, or remove the question")
        questions[number] = VisualQuestion(number, row["question"], image, annotated)
    return list(questions.values())


def _rows(path: Path, key: str, needed: tuple[str, ...]) -> list[Mapping[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))[key]
        for row in rows:
            for name in needed:
                row[name]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: {key!r} must be a list of objects with {', '.join(needed)} ({error!r}); use the official file"
        ) from None
    return rows


def _image(images: Path, split: str, number: int, where: str) -> Path:
    name = f"COCO_{split}_{number:012d}.jpg"
    for path in (images / split / name, images / name):
        if path.is_file():
            return path
    raise ValueError(f"{where}: {name} is neither in {images / split} nor in {images}; correct task.images")


# The official accuracy (arXiv 1505.00468), which OK-VQA uses too. Answers are normalised: lower case, no punctuation,
# number words as digits, no articles, contractions with their apostrophes.
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_PERIOD = re.compile(r"\.(?!\d)")  # full stops but not decimal points
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_DIGITS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
} | {"none": "0"}
_ARTICLES = frozenset({"a", "an", "the"})
# Annotators often write these without apostrophes. Contractions that are then another word (its, were, ill) are absent.
_CONTRACTIONS = """
ain't aren't can't couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd've he's how'd how's
i'm i've isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've o'clock oughtn't
shan't she'd've she's should've shouldn't shouldn't've somebody's someone's something's that'd that's there'd there're
there's they'd they'd've they'll they're they've 'twas wasn't we've weren't what'll what're what's what've when's
where'd where's where've who'd who'll who's who've why'll why're why's won't would've wouldn't wouldn't've y'all you'd
you'd've you'll you're you've
"""


def _without_apostrophes(word: str) -> set[str]:
    """Return all spellings of a word with one or more of its apostrophes removed."""
    places = [index for index, letter in enumerate(word) if letter == "'"]
    spellings = set()
    for count in range(1, len(places) + 1):
        for dropped in itertools.combinations(places, count):
            spellings.add("".join(letter for index, letter in enumerate(word) if index not in dropped))
    return spellings


_RESTORED = {spelling: word for word in _CONTRACTIONS.split() for spelling in _without_apostrophes(word)}


def normalise(answer: str) -> str:
    """Return an answer after the official normalisation, first of punctuation, then of words."""
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    return _words(_punctuation(text))


def _punctuation(text: str) -> str:
    """Remove marks that touch a space, or all if there is a number like 1,000; replace other marks by spaces."""
    result = text
    for mark in _PUNCTUATION:
        touches = f"{mark} " in text or f" {mark}" in text or _COMMA_IN_NUMBER.search(text) is not None
        result = result.replace(mark, "" if touches else " ")
    return _PERIOD.sub("", result)


def _words(text: str) -> str:
    words = [_DIGITS.get(word, word) for word in text.lower().split()]
    return " ".join(_RESTORED.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(answer: str, annotators: Sequence[str]) -> float:
    """Return the official accuracy of an answer: `min(matches / 3, 1)`, averaged over leaving out each annotator once.

    Answers are normalised. With ten annotators, 1, 2, 3 and 4 matches give 0.3, 0.6, 0.9 and 1.
    """
    normalised = normalise(answer)
    matches = [normalised == normalise(other) for other in annotators]
    return sum(min((sum(matches) - match) / 3, 1.0) for match in matches) / len(matches)
