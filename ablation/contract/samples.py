"""Columns of `samples.parquet`, in which a stage may keep the prompts and responses that it judged as items.

The file has a row for each judged response; an item may have several. No result is computed from the file, no key
depends on it, and a missing or damaged file does no harm.
"""

import re

FILE = "samples.parquet"

PLACE = ("item", "subset", "protocol")
"""Text columns that link a row to the rows of `items.parquet`."""

TEXTS = ("prompt", "response", "reference")
"""Text columns for the prompt, the model's response and the reference answer; a text that does not exist is empty.

Other columns hold further texts (`demonstrations`) or numbers (`correct`), which the page shows under their names.
"""

LONGEST = 8_000
"""Largest number of characters of a text; a longer text keeps its beginning and end."""

MOST_ITEMS = 500
"""Largest number of items per subset whose texts are kept; all runs keep the same items."""

_GAP = re.compile(r" \[… (\d{1,3}(?:,\d{3})*) characters left out …\] ")


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text, or its beginning and end with a note between them if it has more than `longest` characters.

    Two thirds come from the beginning and one third from the end, which often holds the answer. If a text was cut
    before, the number in its note grows.
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
