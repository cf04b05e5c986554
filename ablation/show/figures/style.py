"""How the figures look: colours, dashes, sizes of letters."""

# Okabe and Ito, Color Universal Design (2008): distinct also with colour-blind eyes; yellow is left out as too pale.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
Dash = tuple[float, ...]  # lengths of strokes and gaps in widths of the line; empty: solid
DASHES: tuple[Dash, ...] = ((), (5, 1.5), (1, 1), (5, 1, 1, 1), (3, 1, 1, 1, 1, 1), (8, 2))
INK, MUTED, FAINT, WARN = "#222222", "#888888", "#DDDDDD", "#B34700"

FAMILY = "DejaVu Sans"  # comes with matplotlib
TITLE, HEADING, LABEL, SMALL = 10.0, 8.5, 7.5, 7.0  # sizes of letters in points
NAME_WIDTH = 26  # characters of a variant's name


def look(index: int) -> tuple[str, Dash]:
    """Return colour and dash of the index-th variant: the root black, then every pair of both before any repeats."""
    if index == 0:
        return INK, ()
    place = (index - 1) % (len(PALETTE) * len(DASHES))
    return PALETTE[place % len(PALETTE)], DASHES[(place + place // len(PALETTE)) % len(DASHES)]
