"""`samples.parquet`, which a stage may write next to `items.parquet`: the prompts and responses behind the numbers.

One row per text that was judged; an item may have several responses. No number of the tracker is computed from it, it
is part of no key, and a missing or damaged file does no harm.
"""

import re
from dataclasses import dataclass

FILE = "samples.parquet"

PLACE = ("item", "subset", "protocol")
"""Columns that tie a row to the rows of `items.parquet`; text."""

TEXTS = ("prompt", "response", "reference")
"""Prompt, answer and target: text, empty where there is none.

Any further column is one more text (`demonstrations`) or a number (`correct`), under the name that a reader is shown.
"""

NOTE = b"note"
"""Key of the file's metadata: what does not stand in it because it would be too large, in words."""

LONGEST = 8_000
"""Most characters of one text; a longer one keeps its beginning and end."""

MOST = 24_000_000
"""Most characters of one file; if its rows have more, all texts are cut shorter, and then items are left out."""

SHORTEST = 500
"""Characters below which no text is cut: rather, items are left out."""


MOST_ITEMS = 500
"""Items of one subset whose texts are kept, the same ones in every run."""

_GAP = re.compile(r" \[… (\d{1,3}(?:,\d{3})*) characters left out …\] ")


@dataclass(frozen=True)
class Cut:
    """A text, or what is kept of it: its beginning, how many characters are missing then, its end."""

    head: str
    missing: int = 0
    tail: str = ""

    @classmethod
    def of(cls, text: str) -> "Cut":
        """Return a text that may have been cut before: its note is read, so that a further cut counts from there."""
        found = _GAP.search(text)
        if found is None:
            return cls(text)
        return cls(text[: found.start()], int(found[1].replace(",", "")), text[found.end() :])

    def __len__(self) -> int:
        return len(self.head) + len(self.tail)

    def __str__(self) -> str:
        return f"{self.head} [… {self.missing:,} characters left out …] {self.tail}" if self.missing else self.head

    def to(self, longest: int) -> "Cut":
        """Return it with at most this many characters kept, two thirds of them from the beginning."""
        if len(self) <= longest:
            return self
        whole = self.head + self.tail
        tail = min(len(self.tail), longest // 3) if self.missing else longest // 3
        head = min(longest - tail, len(self.head))
        missing = self.missing + len(whole) - head - tail
        return Cut(whole[:head], missing, whole[len(whole) - tail :])


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters and a note: the end of a response often holds its answer."""
    return str(Cut.of(text).to(longest))
