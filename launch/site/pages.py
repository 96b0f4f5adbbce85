"""What the site shows beside ``docs/``, and where links lead on it.

::

    README.md, launch/README.md, CHANGELOG.md   pages, as they are
    parser of the command line                  reference/command-line.md
    docstrings of the public names              reference/python.md, transforms.md
    schemas                                     reference/schemas.md
    other files that pages link to              copies: pictures, and code as text

All of it is made when the site is built, and stored nowhere. Nothing here needs MkDocs,
so that the tests can compare the pages with mkdocs.yml without it.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from beam_pipeline.errors import spelled
from beam_pipeline.recipe.recipe import Option

ROOT = Path(__file__).resolve().parents[2]

# A file of the repository -> its page on the site.
INCLUDED = {
    "README.md": "project.md",
    "launch/README.md": "launch.md",
    "CHANGELOG.md": "changelog.md",
}
SCHEMAS = ("metadata", "elements", "members")
# What public functions return, and users work with.
RETURNED = ("beam_pipeline.read.records.Records", "beam_pipeline.read.batches.Batches")
PICTURES = (".png", ".svg", ".jpg")

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")


def generated_pages() -> dict[str, Callable[[], str]]:
    """Path on the site -> a function that returns the page as Markdown."""
    included = {
        page: lambda name=name: included_page(name) for name, page in INCLUDED.items()
    }
    return {
        **included,
        "reference/command-line.md": command_line_page,
        "reference/python.md": python_page,
        "reference/transforms.md": transforms_page,
        "reference/schemas.md": schemas_page,
    }


# Links


def slug(title: str, _separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def target_of(origin: str, link: str) -> str | None:
    """The file of the repository that a link of another one means, if it means one."""
    path = link.partition("#")[0]
    if "://" in link or not path:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    return target if (ROOT / target).is_file() else None


def place_of(target: str) -> str:
    """Where a file of the repository is on the site."""
    if target in INCLUDED:
        return INCLUDED[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.endswith(PICTURES):
        return f"pictures/{target}"
    # A browser shows text, where it would download code.
    return f"code/{target}.txt"


def links_in(text: str) -> Iterator[str]:
    """The links of a page, outside of its blocks of code."""
    for link in _LINK.finditer(_FENCED.sub("", text)):
        yield link[0]


def for_site(text: str, origin: str) -> str:
    """A page with links as they are on the site; ``origin`` is its file."""
    here = posixpath.dirname(place_of(origin))

    def on_site(found: re.Match[str]) -> str:
        target = target_of(origin, found[0])
        if target is None:
            return found[0]
        anchor = found[0].partition("#")[1:]
        return posixpath.relpath(place_of(target), here or ".") + "".join(anchor)

    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(on_site, prose) for prose in parts[::2]]
    return "".join(parts)


def origins() -> list[str]:
    """The files of the repository that are pages."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [*INCLUDED, *(page.relative_to(ROOT).as_posix() for page in pages)]


def copied_files() -> dict[str, Path]:
    """Path on the site -> the file that is copied there, because a page links to it."""
    targets = {
        target
        for origin in origins()
        for link in links_in((ROOT / origin).read_text())
        if (target := target_of(origin, link))
    }
    outside = sorted(targets - {*origins()})
    return {place_of(t): ROOT / t for t in outside if not t.startswith("docs/")}


def included_page(name: str) -> str:
    """A page that is elsewhere than in ``docs/``."""
    return for_site((ROOT / name).read_text(), name)


# The command line


def command_line_page() -> str:
    """Every command and its flags, as ``--help-all`` has them."""
    from beam_pipeline.cli.main import COMMANDS
    from beam_pipeline.cli.parser import make_parser

    parser, parsers = make_parser(COMMANDS)
    parts = ["# Command line", f"{parser.description} {plain(parser.epilog)}"]
    for command in COMMANDS:
        own = parsers[command.name()]
        parts += [f"## {command.name()}", plain(own.description)]
        # In one line, however wide the terminal is.
        parts += [fenced("text", " ".join(own.format_usage().split()))]
        for title, about, options in command.sections():
            rows = [
                f"| {flag_cell(option)} | {cell(plain(command.explained(option)))} |"
                for option in options
                if option.help
            ]
            about = plain(spelled(about, command.flags()))
            parts += [f"### {title.capitalize()}", *filter(None, [about])]
            parts += ["\n".join(["| flag | meaning |", "|---|---|", *rows])]
        parts += [fenced("text", own.epilog)] if own.epilog else []
    return "\n\n".join(parts) + "\n"


def flag_cell(option: Option) -> str:
    """How an option is written, as a cell."""
    value = "|".join(option.choices) or option.metavar
    return f"`{cell(f'{option.flag} {value}'.strip())}`"


def plain(text: str | None) -> str:
    """Text of the parser as Markdown: what Markdown would read as markup is escaped."""
    pieces = re.split(r"(`[^`]*`)", " ".join((text or "").split()))
    pieces[::2] = [re.sub(r"([*_<>\[\]#])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def cell(text: str) -> str:
    """Text of a cell: a bar would end it."""
    return text.replace("|", "\\|")


def fenced(tag: str, text: str) -> str:
    """A block of code."""
    return f"```{tag}\n{text.strip()}\n```"


# Docstrings and schemas


def python_page() -> str:
    """What ``import beam_pipeline`` has, but for transforms."""
    from beam_pipeline import _MODULES  # importing the names would load TensorFlow

    public = sorted(_MODULES)
    return reference_page(
        "Python",
        "What `beam_pipeline` has, beside [transforms](transforms.md).",
        [*(f"beam_pipeline.{_MODULES[name]}.{name}" for name in public), *RETURNED],
        "inherited_members: true",
    )


def transforms_page() -> str:
    """Every transform."""
    from beam_pipeline import transforms

    found = [getattr(transforms, name) for name in transforms.__all__]
    return reference_page(
        "Transforms",
        "Each is a name of `beam_pipeline.transforms`. "
        "[How to use them](../transforms.md), with examples of each kind.",
        [f"{one.__module__}.{one.__name__}" for one in found],
        "members: false",
    )


def reference_page(title: str, about: str, names: list[str], option: str) -> str:
    """A page with the signature and the docstring of each name."""
    docstrings = [f"::: {name}\n    options:\n      {option}" for name in names]
    return "\n\n".join([f"# {title}", about, *docstrings]) + "\n"


def schemas_page() -> str:
    """The JSON schemas of the files that a data set has."""
    folder = Path(importlib.import_module("beam_pipeline.dataset").__file__ or "")
    parts = [
        "# Schemas",
        "[Format on disk](../format-on-disk.md) explains these files. The schemas are "
        "in the package, in `beam_pipeline/dataset/`.",
    ]
    for name in SCHEMAS:
        text = (folder.parent / f"{name}.schema.json").read_text()
        parts += [f"## {name}.schema.json", fenced("json", text)]
    return "\n\n".join(parts) + "\n"
