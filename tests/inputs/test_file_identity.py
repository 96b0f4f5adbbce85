"""file_identity.py, and that a file is in one split however it is called."""

import itertools
import os

import pytest

from beam_pipeline import plan, record
from beam_pipeline.errors import TooManyRejected
from beam_pipeline.inputs.sources import FileIdentities
from beam_pipeline.read.audit import audit
from tests.raising import assert_names, raises
from tests.sounds import write_sound


@pytest.fixture
def root(tmp_path):
    """Files in a folder and beside it, with links to both, and to their folders."""
    root = tmp_path / "root"
    for path in ("a.wav", "sea/a.wav"):
        write_sound(root / path, 100)
    write_sound(tmp_path / "out" / "b.wav", 100)
    (root / "link.wav").symlink_to("sea/a.wav")
    (root / "folder").symlink_to("sea")
    (root / "away.wav").symlink_to(tmp_path / "out" / "b.wav")
    (root / "away").symlink_to(tmp_path / "out")
    return str(root)


@pytest.mark.parametrize(("name", "key"), [
    ("a.wav", "a.wav"), ("./a.wav", "a.wav"), ("sea/../a.wav", "a.wav"),
    (".//sea/./a.wav", "sea/a.wav"), ("{root}/sea/a.wav", "sea/a.wav"),
    ("../root/a.wav", "a.wav"), ("link.wav", "sea/a.wav"),
    ("folder/a.wav", "sea/a.wav"), ("none/x.wav", "none/x.wav"), ("none/", "none"),
    ("..", ".."), ("../out/b.wav", "../out/b.wav"),
    ("{root}/../out/b.wav", "{parent}/out/b.wav"), ("away.wav", "away.wav"),
    ("away/b.wav", "away/b.wav"), ("/b.wav", "/b.wav"), ("a\0/b.wav", "a\0/b.wav"),
])  # fmt: skip
def test_a_file_has_one_key(root, name, key):
    identities = FileIdentities([root])
    folders = {"root": root, "parent": os.path.dirname(root)}
    assert identities.key(root, name.format(**folders)) == key.format(**folders)


def test_names_of_a_file_outside_in_any_order(root):
    names = ["away.wav", "away/b.wav", "away/other.wav", "again.wav", "../out/b.wav"]
    os.symlink(f"{root}/../out/b.wav", f"{root}/again.wav")
    for order in itertools.permutations(names):
        identities = FileIdentities([root])
        keys = {identities.key(root, n) for n in order if n != "away/other.wav"}
        assert len(keys) == 1


def test_roots_inside_of_one_another(root):
    inner = f"{root}/sea"
    for roots in ([root, inner], [inner, root]):
        identities = FileIdentities(roots)
        assert (
            identities.key(root, "sea/a.wav")
            == identities.key(inner, "a.wav")
            == "a.wav"
        )
        assert (
            identities.key(inner, "../x.wav")
            == identities.key(root, "x.wav")
            == "x.wav"
        )


@pytest.mark.parametrize("name", ["a.wav", "s3://bucket/x/a.wav"])
def test_a_store_has_no_links(name):
    identities = FileIdentities(["s3://bucket/x"])
    assert identities.key("s3://bucket/x", name) == "a.wav"
    assert identities.path("s3://bucket/x", name) == "s3://bucket/x/a.wav"
    assert FileIdentities(["/x"]).key("/x", "gs://b/a.wav") == "gs://b/a.wav"


@pytest.mark.parametrize("stratify", [False, True])
def test_parts_of_a_file_are_in_one_split_however_it_is_called(tmp_path, stratify):
    lines = ["path,offset_s,duration_s"]
    (tmp_path / "links").mkdir()
    (tmp_path / "other").symlink_to("in")
    for at in range(12):
        write_sound(tmp_path / "in" / f"{at}.wav", 4800, seed=at)
        (tmp_path / "links" / f"{at}.wav").symlink_to(tmp_path / "in" / f"{at}.wav")
        spelt = ("in", "./in", tmp_path / "in", "in/../in", "links", "other")
        lines += [f"{way}/{at}.wav,.{k},.05" for k, way in enumerate(spelt)]
    (tmp_path / "m.csv").write_text("\n".join(lines))
    record(tmp_path / "m.csv", tmp_path / "o", win_seconds=0.05, label_from="none",
           splits="train=1,test=1", stratify=stratify)  # fmt: skip
    found = audit(tmp_path / "o")
    assert (len(found.splits), found.clips, found.count("file")) == (2, 72, 0)


def test_a_link_is_not_in_another_group_than_its_file(tmp_path):
    write_sound(tmp_path / "a" / "p.wav", 1000)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "q.wav").symlink_to("../a/p.wav")
    options = {"splits": "train=1,test=1", "group_by": "who", "win_len": 400}
    (tmp_path / "m.csv").write_text("path,who\na/p.wav,x\nb/q.wav,y\n")
    _, (reject,) = plan(tmp_path / "m.csv", label_from="none", **options)
    assert_names(reject.reason, "y", "clip 0")
    (tmp_path / "m.csv").unlink()
    _, (reject,) = plan(tmp_path, label_from="(?P<who>.)/(?P<class>.)", **options)
    assert_names(reject.reason, "b", "clip 0")


def test_a_file_is_not_in_the_inputs_of_two_splits(tmp_path):
    write_sound(tmp_path / "in" / "x.wav", 1000)
    for split in ("train", "test"):
        write_sound(tmp_path / split / f"{split}.wav", 1000)
        (tmp_path / split / "link.wav").symlink_to(tmp_path / "in" / "x.wav")
    with raises(TooManyRejected, naming=["link.wav", "test", "train"]):
        record({n: tmp_path / n for n in ("train", "test")}, tmp_path / "o",
               win_len=400)  # fmt: skip


def test_parts_of_a_file_are_not_in_the_tables_of_two_splits(tmp_path):
    write_sound(tmp_path / "x.wav", 16000)
    for name, start in (("train", 0), ("test", 0.5)):
        (tmp_path / f"{name}.csv").write_text(
            f"path,offset_s,duration_s\nx.wav,{start},.5\n"
        )
    tables = {name: tmp_path / f"{name}.csv" for name in ("train", "test")}
    _, (reject,) = plan(tables, win_len=400, label_from="none")
    assert_names(reject.reason, "test", "train")
