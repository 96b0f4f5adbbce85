"""The hooks of MkDocs that add generated pages, and lead links to them.

mkdocs.yml names this file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from launch.site import pages

# Without it, search does nothing in pages that are opened as files, and Material would
# take one from a network.
WORKER = Path(__file__).with_name("iframe-worker.js")

# Markup of docstrings that says nothing on a page: roles before names, and the colons
# before a block of code.
_ROLE = re.compile(r":[a-z]+:(<code>)")
_COLONS = re.compile(r"<p>::</p>|:(:</p>)")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as on GitHub, so that links with anchors work in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = pages.slug
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds what is not in ``docs/``."""
    for path, make in pages.generated_pages().items():
        files.append(File.generated(config, path, content=make()))
    copied = {**pages.copied_files(), f"assets/{WORKER.name}": WORKER}
    for path, source in copied.items():
        files.append(File.generated(config, path, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Leads links out of ``docs/`` to where their targets are on the site."""
    if page.file.generated_by:
        return markdown
    return pages.for_site(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Shows bars in cells as GitHub does, and docstrings without their markup."""
    html = _CELL.sub(lambda found: found[0].replace("\\|", "|"), html)
    if page.file.src_uri.startswith("reference/"):
        html = _COLONS.sub(r"\1", _ROLE.sub(r"\1", html))
    return html
