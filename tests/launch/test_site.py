"""The documentation as a site, as far as it is ours: MkDocs is not needed here."""

import importlib
import re

import pytest

import beam_pipeline
from beam_pipeline.cli.main import COMMANDS
from launch.site import check, pages


def test_the_reference_has_every_flag():
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


def test_the_reference_has_every_public_name():
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
        ("a.css", "@import 'https://a.b/c.css';", ["https://a.b/c.css"]),
        ("a.html", '<a href="https://a.b">c</a><img src="c.png">', []),
    ],
)
def test_a_site_that_loads_from_elsewhere_is_noticed(
    name, text, found, tmp_path, capsys
):
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / name).write_text(text)
    assert check.elsewhere(tmp_path / name) == found
    assert check.main(str(tmp_path)) == bool(found)
    assert all(address in capsys.readouterr().err for address in found)


def test_an_empty_site_is_an_error(tmp_path):
    assert check.main(str(tmp_path)) == 1
