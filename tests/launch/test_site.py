"""The documentation as a site, as far as it is ours: MkDocs is not needed here."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import beam_pipeline
from beam_pipeline.cli.commands import COMMANDS
from launch.site import check, pages


def pages_in(nav: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(part)


def wrong_in(listed: list[str]) -> list[str]:
    """The pages that a navigation lacks, repeats or makes up."""
    docs = pages.ROOT / "docs"
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    there |= set(pages.generated_pages())
    repeated = {page for page in listed if listed.count(page) > 1}
    return sorted((there ^ set(listed)) | repeated)


def test_the_navigation_has_every_page_once() -> None:
    config = yaml.safe_load((pages.ROOT / "mkdocs.yml").read_text())
    listed = list(pages_in(config["nav"]))
    assert wrong_in(listed) == []
    assert wrong_in([*listed[1:], "none.md", "engines.md"]) == [
        "README.md",
        "engines.md",
        "none.md",
    ]


@pytest.mark.parametrize(
    ("origin", "link", "on_site"),
    [
        ("docs/engines.md", "batches.md#order", "batches.md#order"),
        ("docs/engines.md", "../README.md", "project.md"),
        ("docs/engines.md", "../launch/README.md#the-matrix", "launch.md#the-matrix"),
        ("docs/engines.md", "../launch/test.sh", "code/launch/test.sh.txt"),
        ("docs/engines.md", "../launch/features.png", "pictures/launch/features.png"),
        ("README.md", "docs/README.md", "README.md"),
        ("launch/README.md", "../docs/engines.md", "engines.md"),
        ("docs/engines.md", "#a", "#a"),
        ("docs/engines.md", "https://a.b/c.md", "https://a.b/c.md"),
        ("docs/engines.md", "none.md", "none.md"),  # MkDocs refuses it
    ],
)
def test_links_lead_where_pages_are_on_the_site(origin, link, on_site) -> None:
    text = f"[a]({link})\n\n```text\n[a]({link})\n```\n"
    wanted = f"[a]({on_site})\n\n```text\n[a]({link})\n```\n"
    assert pages.for_site(text, origin) == wanted


def test_what_pages_link_to_is_copied() -> None:
    copied = pages.copied_files()
    assert copied["pictures/launch/features.png"].read_bytes()[1:4] == b"PNG"
    for origin in pages.origins():
        text = pages.for_site((pages.ROOT / origin).read_text(), origin)
        for link in pages.links_in(text):
            if re.match(r"(\.\./)*(code|pictures)/", link):
                assert link.partition("#")[0] in copied


def test_the_reference_has_every_flag() -> None:
    page = pages.command_line_page()
    sections = dict(
        part.split("\n", 1) for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    )
    assert list(sections) == [command.name() for command in COMMANDS]
    for command in COMMANDS:
        for option in command.known().values():
            shown = re.search(
                rf"^\| `{option.flag}\b.*` \|", sections[command.name()], re.MULTILINE
            )
            assert bool(shown) == bool(option.help), (command, option)


def test_the_reference_has_every_public_name() -> None:
    transforms = importlib.import_module("beam_pipeline.transforms")
    shown = [
        name
        for page in (pages.python_page(), pages.transforms_page())
        for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    ]
    names = [name.rpartition(".")[2] for name in shown]
    public = [*beam_pipeline.__all__, *transforms.__all__, "Records", "Batches"]
    assert sorted(names) == sorted(public)
    for module, _, name in (path.rpartition(".") for path in shown):
        file = pages.ROOT / (module.replace(".", "/") + ".py")
        assert re.search(rf"^(class|def) {name}\b", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script src="https://a.b/c.js"></script>', ["https://a.b/c.js"]),
        ("a.html", '<link rel=x href="//a.b/c.css">', ["//a.b/c.css"]),
        (
            "a.html",
            "<style>a {background: url(http://a.b/c)}</style>",
            ["http://a.b/c"],
        ),
        ("a.html", '<p style="background: url(http://a.b/c)">', ["http://a.b/c"]),
        ("a.css", "@import 'https://a.b/c.css';", ["https://a.b/c.css"]),
        ("a.html", '<a href="https://a.b">c</a><img src="c.png">', []),
        ("a.css", "a {background: url(../c.png)}", []),
    ],
)
def test_a_site_that_loads_from_elsewhere_is_noticed(
    name, text, found, tmp_path, capsys
) -> None:
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / name).write_text(text)
    assert check.elsewhere(tmp_path / name) == found
    assert check.main(str(tmp_path)) == bool(found)
    assert all(address in capsys.readouterr().err for address in found)


def test_an_empty_site_is_an_error(tmp_path) -> None:
    assert check.main(str(tmp_path)) == 1
