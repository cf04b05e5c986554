"""A page as its elements."""

from html.parser import HTMLParser


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
