"""What a release holds, as far as it can be read: ``launch/release.sh`` builds one."""

import io
import re
import tarfile
import zipfile

import pytest
import yaml
from packaging.licenses import canonicalize_license_expression

from beam_pipeline import record
from launch import licences
from launch.licences import requirements_of
from launch.release import contents
from tests.processes import ROOT, run_python
from tests.sounds import write_corpus


def test_a_whole_release_passes_and_a_file_too_many_is_named(tmp_path, capsys):
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
    places = str(tmp_path / "source"), str(wheel), str(sdist)
    assert contents.main(*places) == 0
    assert "hold the 2 files" in capsys.readouterr().out
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("tests/test_a.py", "")
    assert contents.main(*places) == 1
    assert capsys.readouterr().out == "the wheel has tests/test_a.py\n"


def test_setup_names_every_file_that_is_no_module():
    named = {
        f"{package.replace('.', '/')}/{name}"
        for package, names in requirements_of("package_data").items()
        for name in names
    }
    files = contents.package_files(ROOT)
    assert named == {path for path in files if not path.endswith(".py")}


READING_ALONE = """
import re, sys
from importlib import metadata

def normal(name):
    return name.lower().replace("_", "-")

def with_needed(names):
    for name in names:
        try:
            needed = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # that of another Python or system
            continue
        yield name
        needed = [each for each in needed if "extra ==" not in each]
        yield from with_needed(re.match(r"[\\w.-]+", each)[0] for each in needed)

installed = {normal(name) for name in with_needed(sys.argv[2:])}
of_modules = metadata.packages_distributions()

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        of = {normal(each) for each in of_modules.get(name, ())}
        if of and not of & {*installed, "audio-tfrecords"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
for name in [n for n in sys.modules if n in of_modules]:
    del sys.modules[name]
from beam_pipeline import open_records
records = open_records(sys.argv[1])
loud = records.where("level_db < 0")
(batch,) = loud.batches(99, normalize=["mel"], shuffle="global")
print(len(records.to_arrow()), *(batch[name].shape for name in ("mel", "signal")))
print(open_records(sys.argv[1] + "/../files")[0]["signal"].shape)
"""
SCORING = """
from beam_pipeline import predict
options = {"feature": "mel", "normalize": True, "each_window": True, "threshold": 0}
print(len(predict(lambda mel: 0 * mel[:, 0, :3], sys.argv[1] + "/../in",
                  like=sys.argv[1], **options)))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A data set, with its sounds in ``in`` beside it."""
    folder = tmp_path_factory.mktemp("recorded")
    write_corpus(folder / "in")
    features = {"mel": "log_mel(n_fft=256,hop=64,n_mels=8)", "signal": "identity()"}
    record(
        folder / "in", folder / "out", win_len=500, num_elems=6,
        features=features, encodings={"signal": "flac"},
    )  # fmt: skip
    original = {"signal": "original"}
    record(folder / "in", folder / "files", win_len="clip", encodings=original)
    return folder / "out"


@pytest.mark.parametrize("scores", [False, True])
def test_reading_alone_needs_the_packages_of_its_page(recorded, scores):
    page = (ROOT / "docs" / "concepts.md").read_text()
    reading = r"^pip install --no-deps \.\npip install (.+)$"
    (line,) = re.findall(reading, page, re.MULTILINE)
    packages = line.split()
    if scores:
        packages += re.findall(r"`open_audio`: `(.+?)`", page)[0].split()
    script = READING_ALONE + SCORING * scores
    done = run_python("-c", script, recorded, *packages)
    assert done.stdout == "6 (6, 4, 8) (6, 500)\n(2700,)\n" + "180\n" * scores


def test_the_version_is_in_one_place():
    found = re.compile(r"^\s*(?:__)?version(?:__)? ?[=:] ?['\"]?\d", re.MULTILINE)
    names = ("setup.py", "pyproject.toml", "CITATION.cff", "beam_pipeline/__init__.py")
    places = [name for name in names if found.search((ROOT / name).read_text())]
    assert places == ["beam_pipeline/__init__.py"]


def test_the_citation_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["authors"] == [{"name": "The audio-tfrecords developers"}]
    assert f'license="{citation["license"]}"' in (ROOT / "setup.py").read_text()


# Licences; no index is asked


def rows():
    """The cells of the table of the page, below its first two lines."""
    section = licences.PAGE.read_text().partition(licences.HEADING)[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert tuple(cells[0]) == licences.COLUMNS
    return cells[2:]


def test_the_page_has_every_requirement_of_setup():
    always = licences.requirements_of("install_requires")
    listed = [name for _, names in rows() for name in names.split(", ")]
    assert sorted(licences.named(always)) == sorted(listed)


def test_every_licence_is_one_of_spdx():
    for licence, *_ in rows():
        assert canonicalize_license_expression(licence) == licence
        assert "LicenseRef" not in licence
