"""What a release holds, as far as it can be read: ``launch/release.sh`` builds one."""

from __future__ import annotations

import ast
import io
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from launch.release import contents

ROOT = Path(__file__).parents[2]


@pytest.fixture
def release(tmp_path: Path) -> dict[str, Path]:
    """A source of two files, and the wheel and sdist that are made of it."""
    package = tmp_path / "source" / "beam_pipeline"
    (package / "dataset").mkdir(parents=True)
    (package / "py.typed").touch()
    (package / "dataset" / "metadata.schema.json").write_text("{}")
    held = {"beam_pipeline/py.typed", "beam_pipeline/dataset/metadata.schema.json"}
    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in held | {f"a-1.dist-info/{name}" for name in contents.OF_WHEEL}:
            file.writestr(name, "")
    with tarfile.open(sdist, "w:gz") as file:
        for name in held | contents.OF_SDIST | {"a.egg-info/PKG-INFO"}:
            file.addfile(tarfile.TarInfo(f"a-1/{name}"), io.BytesIO())
    return {"source": tmp_path / "source", "wheel": wheel, "sdist": sdist}


def test_a_whole_release_passes(release, capsys) -> None:
    assert contents.main(*map(str, release.values())) == 0
    assert "hold the 2 files" in capsys.readouterr().out


def test_a_file_too_many_is_named(release, capsys) -> None:
    with zipfile.ZipFile(release["wheel"], "a") as file:
        file.writestr("tests/test_a.py", "")
    assert contents.main(*map(str, release.values())) == 1
    assert capsys.readouterr().out == "the wheel has tests/test_a.py\n"


def test_setup_names_every_file_that_is_no_module() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    (data,) = (
        ast.literal_eval(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "package_data"
    )
    named = {
        f"{package.replace('.', '/')}/{name}"
        for package, names in data.items()
        for name in names
    }
    files = contents.package_files(ROOT)
    assert named == {path for path in files if not path.endswith(".py")}


def test_the_version_is_in_one_place() -> None:
    found = re.compile(r"^\s*(?:__)?version(?:__)? ?[=:] ?['\"]?\d", re.MULTILINE)
    names = ("setup.py", "pyproject.toml", "CITATION.cff", "beam_pipeline/__init__.py")
    places = [name for name in names if found.search((ROOT / name).read_text())]
    assert places == ["beam_pipeline/__init__.py"]


def test_the_citation_has_what_the_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["authors"] == [{"name": "The audio-tfrecords developers"}]
    assert f'license="{citation["license"]}"' in (ROOT / "setup.py").read_text()


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert all(
        re.match(r"\d+\.\d+\.\d+( - \d{4}-\d\d-\d\d)?$", v) for v in versions[1:]
    )
    for version in text.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.+)$", version, re.MULTILINE)
        order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
        assert kinds == [kind for kind in order if kind in kinds], version[:20]
