"""Columns of `samples.parquet`, in which a stage may leave the prompts and responses behind its `items.parquet`.

It has a row for each judged response; an item may have several. No number of the tracker is computed from the file, it
is part of no key, and a missing or damaged file does no harm.
"""

import re

FILE = "samples.parquet"

PLACE = ("item", "subset", "protocol")
"""Columns that tie a row to the rows of `items.parquet`; text."""

TEXTS = ("prompt", "response", "reference")
"""Prompt, answer and target: text, empty if there is none.

Any further column is one more text (`demonstrations`) or a number (`correct`), under the name that a reader is shown.
"""

LONGEST = 8_000
"""Most characters of one text; a longer one keeps its beginning and end."""

MOST_ITEMS = 500
"""Items of one subset whose texts are kept, the same ones in every run."""

_GAP = re.compile(r" \[… (\d{1,3}(?:,\d{3})*) characters left out …\] ")


def cut(text: str, longest: int = LONGEST) -> str:
    """Return the beginning and end of a text, with a note between them if it has more than `longest` characters.

    Two thirds are from the beginning, one is from the end, which often holds the answer. If a text was cut before, the
    number in its note grows.
    """
    gap = _GAP.search(text)
    head, missing, tail = text, 0, ""
    if gap is not None:
        head, missing, tail = text[: gap.start()], int(gap[1].replace(",", "")), text[gap.end() :]
    kept = head + tail
    if len(kept) <= longest:
        return text
    last = longest // 3 if gap is None else min(len(tail), longest // 3)
    first = min(longest - last, len(head))
    missing += len(kept) - first - last
    return f"{kept[:first]} [… {missing:,} characters left out …] {kept[len(kept) - last :]}"
