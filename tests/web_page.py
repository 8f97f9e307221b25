"""Reads the pages that reports write."""

import html.parser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(html.parser.HTMLParser):
  """What a browser makes of a page; fails on tags that do not pair."""

  def __init__(self, content: str):
    super().__init__(convert_charrefs=True)
    self.stack = []
    self.tags = []  # (tag, attributes)
    self.text = []
    self.texts = {}  # Id -> text of the element.
    self.tables = {}  # Name -> rows of texts of cells.
    self._rows = None
    self._ids = []
    self.feed(content)
    self.close()
    assert not self.stack

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    assert len(attributes) == len(attrs), (tag, attrs)
    self.tags.append((tag, attributes))
    if tag in VOID:
      return
    self.stack.append(tag)
    self._ids.append(attributes.get("id"))
    if attributes.get("role") == "region":
      self._rows = self.tables.setdefault(attributes["aria-label"], [])
    elif tag == "tr":
      self._rows.append([])
    elif tag in ("td", "th"):
      self._rows[-1].append("")

  def handle_startendtag(self, tag, attrs):
    self.tags.append((tag, dict(attrs)))

  def handle_endtag(self, tag):
    assert self.stack.pop() == tag
    self._ids.pop()

  def handle_data(self, data):
    self.text.append(data)
    for key in filter(None, self._ids):
      self.texts[key] = self.texts.get(key, "") + data
    if self._rows and {"td", "th"} & set(self.stack):
      self._rows[-1][-1] += data

  def named(self, tag):
    return [attributes for name, attributes in self.tags if name == tag]

  def numbers(self):
    return [float(attributes["value"]) for attributes in self.named("data")]
