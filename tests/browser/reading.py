"""What the tests of the page read from it."""

import re
from pathlib import Path

ATTACK = "<script>alert(1)</script>"


def unfold(page, selector="details.part, .study > details, details.options"):
    """Open what is folded; by default the studies and their parts, not the evidence."""
    page.evaluate("found => document.querySelectorAll(found).forEach((node) => { node.open = true; })", selector)


def drawn(page, number=0):
    """Scroll to a study's curves, which are drawn when they come into sight; return their element."""
    unfold(page)
    curves = page.locator(".curves").nth(number)
    curves.scroll_into_view_if_needed()
    curves.locator("canvas").wait_for()
    return curves


def with_all_open(page):
    """Have everything drawn and opened that a reader can."""
    for number in range(page.locator(".curves").count()):
        drawn(page, number)
    unfold(page, "details")


def numbers(texts):
    return [float(match[0].replace("−", "-")) for text in texts if (match := re.match(r"[−\d.]+", text))]


PIXELS = """canvas => {
  const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0, sum = 0;
  for (let i = 0; i < d.length; i += 4) {
    if (!d[i + 3]) continue;
    painted++;
    sum = (sum * 31 + d[i] + 7 * d[i + 1] + 13 * d[i + 2] + i) % 1e9;
  }
  return [painted, sum];
}"""


def ink(curves):
    """How many pixels of the chart are painted, and a sum that changes with the picture."""
    curves.page.wait_for_timeout(100)  # the chart is painted in the next frame
    return curves.locator("canvas").evaluate(PIXELS)


def readout(curves):
    """The table of values at a step: {variant: [mean, spread, seeds]}."""
    rows = [row.locator("th, td").all_inner_texts() for row in curves.locator(".readout tbody tr").all()]
    return {name.strip(): cells for name, *cells in rows}


def save(part, kind, folder):
    """Press the button of a figure; return the file that it saves: its SVG or its data as CSV."""
    with part.page.expect_download() as waiting:
        part.get_by_role("button", name=f"Save {'data ' if kind == 'CSV' else ''}as {kind}:").click()
    path = Path(folder) / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
