"""Pages as a reader sees them."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects visible text, ids and addresses, and checks that tags are balanced."""

    void = frozenset({"meta", "br", "link", "img", "hr", "path", "use", "rect", "stop"})

    def __init__(self, text):
        super().__init__()
        self.words, self.ids, self.addresses, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        self.addresses += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        if "id" in dict(attrs):
            self.ids.append(dict(attrs)["id"])
        self.addresses += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words)).replace("\u202f", " ")


def read(path):
    return Page(path.read_text(encoding="utf-8"))
