"""The documentation against the code: commands run, and names and links exist.

The tag of a fenced block, and the line before it, say what the block is for:

    sh, python      run in order, page by page, in a folder of synthesised sounds
    console         not run, because they need a cluster, a store or an installation;
                    their commands, flags, scripts and keywords must exist
    csv, yaml, ...  written as the file that the line before names: "`clips.csv`:"
    python that begins with "# name.py" is written as that file

The output of a block that records is deleted before, so that blocks do not depend on
each other. If a line of Python prints and ends in a comment, it must print the comment.
"""

import ast
import contextlib
import doctest
import gc
import importlib
import importlib.metadata
import importlib.util
import io
import linecache
import os
import re
import shlex
import shutil
import sys
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import soundfile

import beam_pipeline
from beam_pipeline.cli import main
from beam_pipeline.cli.main import COMMANDS
from beam_pipeline.dataset.element_set import ShardSizes
from beam_pipeline.recipe.recipe import recipe_options
from launch.site.pages import slug
from launch.synthesise import write_clips
from tests.benchmarks.evidence import arguments_of, commands_of
from tests.test_layers import FLOOR_OF, FLOORS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "launch" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README_LINES = 110

# Its blocks need packages that tests/frameworks have.
ELSEWHERE = ("frameworks.md",)

# A wrong name that a page uses to explain an error.
WRONG = {"win_lenght"}

RUN = ("sh", "python")
WRITTEN = ("csv", "tsv", "yaml", "txt", "jsonl")
PLAIN = ("", "text", "json", "console", "proto")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w-])")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block; ``before`` is the last line of text above it."""

    line: int
    tag: str
    text: str
    before: str


def blocks_of(page):
    text = page.read_text()
    return [
        Block(
            text.count("\n", 0, found.start()) + 1,
            found[1],
            found[2],
            text[: found.start()].rstrip().rpartition("\n")[2],
        )
        for found in _BLOCK.finditer(text)
    ]


def prose_of(page):
    return _BLOCK.sub("", page.read_text())


def name_of(page):
    return str(page.relative_to(ROOT))


def commands_in(text):
    """The words of each command; a backslash continues a line."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


@pytest.fixture(scope="module")
def flags():
    """The flags of each command."""
    options = {command.name(): command.known().values() for command in COMMANDS}
    more = {"--help", "--help-all"}
    return {name: {o.flag for o in found} | more for name, found in options.items()}


@pytest.fixture(scope="module")
def scripts():
    """The text of what parses its own flags: launch/, benchmarks, faults, fuzzing."""
    folder = ROOT / "launch"
    found = [*folder.rglob("*.sh"), *folder.rglob("*.py"), *folder.rglob("*.yaml")]
    for name in ("benchmarks", "faults", "fuzz"):
        found += (ROOT / "tests" / name).glob("*.py")
    return "".join(path.read_text() for path in found)


@pytest.fixture(scope="module")
def keywords():
    """The keywords of each function that pages call."""
    names = (
        *("record", "record_dataset", "record_examples", "encode_example"),
        *("write_records", "replay", "audit", "convert", "open_records"),
    )
    taken = {n: set(signature(getattr(beam_pipeline, n)).parameters) for n in names}
    for known in taken.values():
        known |= set(ShardSizes.__dataclass_fields__) if "sizes" in known else set()
    return taken


# Running


def write(folder, name, seconds, rate=8000):
    """Writes a sound of noise; its name is the seed."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(name.encode()))
    noise = rng.normal(0, 0.05, round(seconds * rate))
    soundfile.write(path, noise, rate)


@pytest.fixture(scope="module")
def frozen():
    """Collecting garbage after each run takes a second where TensorFlow is loaded."""
    importlib.import_module("tensorflow")
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def sounds(tmp_path_factory, frozen):
    """The folder in which pages run: sounds, tables, and a data set."""
    folder = tmp_path_factory.mktemp("docs")
    write_clips(folder / "sounds", clips_per_class=8, seconds=2)
    write(folder, "night/a.wav", 55)
    write(folder, "hill/c.flac", 5)
    for speaker in ("theo", "lucas", "nicolas", "george", "yweweler", "jackson"):
        for digit in (3, 7):
            write(folder, f"speech/{digit}_{speaker}_0.wav", 0.6)
    header = "Selection\tView\tBegin Time (s)\tEnd Time (s)\tSpecies\n"
    for number in range(4):
        name = f"birds/2026-05-0{number + 1}"
        write(folder, f"{name}.wav", 9)
        write(folder, f"reef/{name[6:]}.wav", 9)
        table = "1\tSpectrogram 1\t0.5\t1.25\twren\n2\tSpectrogram 1\t3\t4.5\towl\n"
        (folder / f"{name}.selections.txt").write_text(header + table)
        write(folder, f"sea/2026-05-0{number + 1}T00.wav", 6)
    for number, label in enumerate(("cargo", "passenger", "passenger", "tug")):
        write(folder, f"data/{number}_24346_{label}.wav", 9)
    (folder / "selections.txt").write_text(
        "Selection\tBegin File\tFile Offset (s)\t"
        "Begin Time (s)\tEnd Time (s)\tSpecies\n"
        "1\t2026-05-01.wav\t1.5\t1.5\t2.75\tsnapper\n"
        "2\t2026-05-02.wav\t4\t13\t14.5\tgrunt\n"
    )
    # As the pages on reading expect it.
    beam_pipeline.record(
        folder / "sounds", folder / "records",
        win_seconds=0.5, splits="train=.6,eval=.2,test=.2", stratify=True,
        features={
            "log_mel": "log_mel(n_fft=512,hop=256,n_mels=32)",
            "signal": "identity()",
        },
    )  # fmt: skip
    return folder


class Page:
    """Runs the blocks of a page."""

    def __init__(self, page):
        self.name = name_of(page)
        self.module = ModuleType("__main__")

    def run(self, block):
        where = f"{self.name}:{block.line}"
        module = re.match(r"# (\w+\.py)\n", block.text)
        named = re.search(r"`([\w./-]+)`:$", block.before)
        if block.tag == "python" and module:
            Path(module[1]).write_text(block.text)
            # Another page may have had a module of this name.
            sys.modules.pop(module[1].removesuffix(".py"), None)
            importlib.invalidate_caches()
        elif block.tag == "python":
            self.execute(block.text, where)
        elif block.tag == "sh":
            for words in commands_in(block.text):
                self.command(words, where)
        elif block.tag in WRITTEN:
            assert named, f"{where}: the line before does not end in `name`:"
            path = Path(named[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        else:
            assert block.tag in PLAIN, f"{where}: what is a block of {block.tag}?"

    def execute(self, text, where):
        said = io.StringIO()
        # As a notebook keeps the source of its cells.
        linecache.cache[where] = (len(text), None, text.splitlines(True), where)
        with contextlib.redirect_stdout(said):
            exec(compile(text, where, "exec"), vars(self.module))
        wanted = re.findall(r"print\(.*\)  # (.+)$", text, re.MULTILINE)
        assert said.getvalue().splitlines()[: len(wanted)] == wanted, where

    def command(self, words, where):
        assert words[0] == "audio-tfrecords", f"{where}: {words[0]} cannot run"
        if "--output" in words and words[1] == "record":
            forget(words[words.index("--output") + 1])
        assert main.main(words[1:]) == 0, f"{where}: {shlex.join(words)}"


def forget(output):
    shutil.rmtree(os.fspath(output), ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page, sounds, tmp_path, monkeypatch):
    blocks = blocks_of(page)
    if page.name in ELSEWHERE or not any(block.tag in RUN for block in blocks):
        return
    folder = tmp_path / "page"
    shutil.copytree(sounds, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    real = beam_pipeline.record

    def record(input, output, **options):
        forget(output)
        return real(input, output, **options)

    monkeypatch.setattr(beam_pipeline, "record", record)
    running = Page(page)
    monkeypatch.setitem(sys.modules, "__main__", running.module)
    for block in blocks:
        # tests/frameworks have PyTorch.
        needs_torch = re.search(r"^import torch$", block.text, re.MULTILINE)
        if not needs_torch or importlib.util.find_spec("torch"):
            running.run(block)


def test_a_block_that_does_not_work_fails(sounds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Page(README)
    with pytest.raises(AssertionError, match="there-is-none"):
        page.run(Block(1, "sh", "audio-tfrecords verify there-is-none\n", ""))
    with pytest.raises(AssertionError):
        page.run(Block(1, "python", "print(1 + 1)  # 3\n", ""))


# Names


def calls_in(text):
    """The calls in a piece of Python; none where it is something else."""
    with contextlib.suppress(SyntaxError):
        tree = ast.parse(text)
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_flags_exist(page, flags, scripts):
    known = set().union(*flags.values(), {"--version"})
    for block in blocks_of(page):
        for words in commands_in(block.text) if block.tag in ("sh", "console") else ():
            ours = words[: words.index("--")] if "--" in words else words
            at = ours.index("audio-tfrecords") if "audio-tfrecords" in ours else -1
            allowed = known
            if at >= 0 and ours[at + 1].startswith("-"):
                continue
            if at >= 0:
                assert ours[at + 1] in flags, f"{name_of(page)}:{block.line}"
                allowed = flags[ours[at + 1]]
            for flag in re.findall(r"(?<!\S)--[a-z-]+(?=[=\s]|$)", " ".join(ours)):
                is_script = at < 0 and f"{flag}" in scripts
                assert flag in allowed or is_script, (name_of(page), block.line, flag)
    for code in _INLINE.findall(prose_of(page)):
        for flag in _FLAG.findall(code):
            assert flag in known or flag in scripts, (name_of(page), flag)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_keywords_exist(page, keywords):
    pieces = [block.text for block in blocks_of(page) if block.tag == "python"]
    pieces += _INLINE.findall(prose_of(page))
    for piece in pieces:
        for call in calls_in(piece):
            known = keywords.get(getattr(call.func, "id", ""))
            names = {keyword.arg for keyword in call.keywords if keyword.arg}
            assert known is None or names <= known | WRONG, (name_of(page), piece)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_scripts_and_modules_exist(page):
    text = page.read_text()
    folders = (ROOT, ROOT / "launch")
    for path in re.findall(r"\b[\w/]+\.(?:sh|py)\b", text):
        if "/" in path and not path.startswith("/"):
            assert any((at / path).exists() for at in folders), (name_of(page), path)
    for module in re.findall(r"python -m ([\w.]+)", text):
        path = ROOT / module.replace(".", "/")
        found = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        assert found or module.split(".")[0] != "tests", (name_of(page), module)


def anchors_of(page):
    return {slug(t) for t in re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page):
    for link in _LINK.findall(prose_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), (name_of(page), link)
        if anchor:
            assert anchor in anchors_of(target), (name_of(page), link)


def test_architecture_matches_the_tree():
    page = ROOT / "docs" / "architecture.md"
    tree = next(b.text for b in blocks_of(page) if b.text.startswith("beam_pipeline/"))
    listed = {line.split()[0].rstrip("/") for line in tree.splitlines()[1:]}
    assert listed == set(FLOOR_OF)
    (arrows,) = (b.text for b in blocks_of(page) if b.text.startswith("text, arrays <"))
    floors = [floor.replace(",", " ").split() for floor in arrows.split("<")]
    assert floors == [floor.split() for floor in FLOORS]
    for field in re.findall(r"`recipe\.(\w+)`", prose_of(page)):
        assert field in recipe_options()


# What there must be


def test_every_option_is_explained(flags):
    docs = "".join(page.read_text() for page in PAGES if page.parent.name == "docs")
    explained = set(_FLAG.findall(docs))
    for command, known in flags.items():
        assert known - explained <= {"--help", "--help-all", "-n"}, command


def test_every_page_is_in_the_table_of_contents():
    index = ROOT / "docs" / "README.md"
    listed = set(_LINK.findall(index.read_text()))
    for page in index.parent.glob("*.md"):
        assert page == index or page.name in listed


def test_the_readme_shows_the_flow():
    (picture,) = [b.text for b in blocks_of(README) if b.tag == "text"]
    for word in ("plan", "decode", "transform", "GZIP", "record_dataset", "replay"):
        assert word in picture


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= README_LINES


def test_each_table_of_the_evidence_names_its_command_and_its_day():
    page = (ROOT / "docs" / "evidence.md").read_text()
    for title, commands in commands_of(page).items():
        assert commands, title
        assert {arguments_of(c)[0] for c in commands} <= {sys.executable, "bash"}
        text = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text), title


EXAMPLES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "beam_pipeline").rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
