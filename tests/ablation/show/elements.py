"""The page of a database, and a page as its elements."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser

from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.database import Store


def write_report(database, out):
    """Draw the page of a database into a file; return its path."""
    with Store(database) as store:
        out.write_text(draw(read_page(store)), encoding="utf-8")
    return out


def packed(html):
    """What a page holds packed: {folded: [HTML], data: {id: data}}."""
    return json.loads(gzip.decompress(base64.b64decode(re.search(r'id="packed">(.*?)</script>', html)[1])))


def unfolded(html):
    """The page as its script opens it."""
    folded = packed(html)["folded"]
    for number in reversed(range(len(folded))):
        html = html.replace(f'<div data-folded="{number}"></div>', folded[number])
    return html


class Elements(HTMLParser):
    """Start tags with attributes, the text of each script and style, and all other text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.inline, self.text, self._raw = [], [], "", None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inline.append([tag, dict(attrs), ""])
            self._raw = self.inline[-1]

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._raw = None

    def handle_data(self, data):
        if self._raw is not None:
            self._raw[2] += data
        else:
            self.text += data
