"""Tests a built site: nothing in it is loaded from elsewhere.

python -m launch.site.check FOLDER
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

# What a browser loads by itself; links that a reader follows may lead anywhere.
LOADED = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src",
    "audio": "src", "video": "src", "object": "data", "embed": "src",
}  # fmt: skip
_ELSEWHERE = re.compile(r"\s*(https?:)?//", re.IGNORECASE)
_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)")


class Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if address := given.get(LOADED.get(tag, "")):
            self.addresses.append(address)
        self.addresses += _STYLE.findall(given.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.addresses += _STYLE.findall(data)


def elsewhere(page: Path) -> list[str]:
    """The addresses on other hosts that a page or a style sheet loads."""
    text = page.read_text()
    if page.suffix == ".css":
        found = _STYLE.findall(text)
    else:
        loads = Loads()
        loads.feed(text)
        found = loads.addresses
    return [address for address in found if _ELSEWHERE.match(address)]


def main(folder: str) -> int:
    """Prints what the site loads from elsewhere; the exit status is 1 if it does."""
    root = Path(folder)
    pages = [*root.rglob("*.html"), *root.rglob("*.css")]
    bad = {page: found for page in sorted(pages) if (found := elsewhere(page))}
    for page, found in bad.items():
        print(f"{page} loads {', '.join(found)}", file=sys.stderr)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    count = sum(page.suffix == ".html" for page in pages)
    print(f"{root.resolve()}: {count} pages, {size / 1e6:.1f} MB, open index.html.")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
