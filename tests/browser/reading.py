"""What the tests of the page read from it."""

import re
from pathlib import Path

ATTACK = "<script>alert(1)</script>"


def drawn(page):
    """Scroll to the first study's curves, which are drawn when they come into sight; return their element."""
    curves = page.locator(".curves").first
    curves.scroll_into_view_if_needed()
    curves.locator("canvas").wait_for()
    return curves


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
    """Press the button of a figure; return the file that it saves: its SVG, its PDF or its data as CSV."""
    with part.page.expect_download() as waiting:
        part.get_by_role("button", name=f"Save {'data ' if kind == 'CSV' else ''}as {kind}:").click()
    path = Path(folder) / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def texts_of_pdf(path):
    """Every text of a PDF of one page, whose table of objects must be right; bytes as the standard fonts read them."""
    content = path.read_bytes()
    assert content.startswith(b"%PDF-1.4\n")
    start = int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", content)[1])
    places = [int(place) for place in re.findall(rb"(\d{10}) 00000 n \n", content[start:])]
    assert content[start:].startswith(b"xref\n0 %d\n" % (len(places) + 1))
    for number, place in enumerate(places, 1):
        assert content[place:].startswith(b"%d 0 obj\n" % number)
    length, stream = re.search(rb"/Length (\d+) >>\nstream\n(.*)\nendstream", content, re.S).groups()
    assert int(length) == len(stream)
    assert b"NaN" not in stream
    assert b"undefined" not in stream
    return [bytes.fromhex(text.decode()).decode("cp1252") for text in re.findall(rb"<([0-9a-f]*)> Tj", stream)]
