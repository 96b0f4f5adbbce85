"""sink.py against Beam's own sink and reader, and with the blocks of shards."""

import hashlib
import shutil

import apache_beam as beam
import pytest

from beam_pipeline.dataset.folders import read_run_error
from beam_pipeline.dataset.job import Job
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.pipeline.finish import find_finished
from beam_pipeline.pipeline.graph import WriteShards, WriteToTFRecord
from beam_pipeline.planning.shards import Shard
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.tfrecord import SUFFIX, read_any_records
from beam_pipeline.write.shard import EncodedBlock
from tests.pipelines import run_step
from tests.raising import raises
from tests.shards import blocks_of, record_at
from tests.sounds import damage

RECORDS = ["ö %d ".encode() % i * (i + 1) for i in range(25)]


def names_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# Plain bytes: as Beam's


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"file_name_suffix": ".tfrecord.gz", "num_shards": 3},
        {"compression_type": "gzip", "num_shards": 2, "file_name_suffix": ".gz"},
        {"shard_name_template": "", "file_name_suffix": ".gz"},
        {"coder": beam.coders.StrUtf8Coder(), "num_shards": 1},
    ],
    ids=str,
)
def test_plain_bytes_are_written_as_beam_writes_them(tmp_path, options):
    given = [r.decode() for r in RECORDS] if "coder" in options else RECORDS
    reader = beam.io.ReadAllFromTFRecord(
        compression_type=options.get("compression_type", "auto")
    )
    for name, writer in (("ours", WriteToTFRecord), ("beam", beam.io.WriteToTFRecord)):
        folder = tmp_path / name
        folder.mkdir()
        run_step(given, writer(f"{folder}/part", **options))
        found, _, _ = run_step([f"{folder}/*"], reader)
        assert sorted(found) == sorted(RECORDS)
    names = names_below(tmp_path / "ours")
    assert names == names_below(tmp_path / "beam")
    assert len(names) == (options.get("num_shards") or 1)


# Placed records


def shards_of(sizes):
    return [
        Shard(f"records-{k:05d}-of-{len(sizes):05d}", "records", k, size, f"digest {k}")
        for k, size in enumerate(sizes)
    ]


def records_of(shard):
    return [record_at(shard, position) for position in range(shard.examples)]


def every(size, shard):
    """The cuts that make blocks of a size."""
    return range(0, shard.examples, size)


def write_placed(tmp_path, shards, before=None):
    """Writes shards, each a list of blocks; returns the ShardInfos.

    ``before`` is put between the step that gives the blocks and the sink.
    """
    (tmp_path / "out").mkdir(exist_ok=True)
    job = Job((), f"{tmp_path}/out", str(tmp_path / "work"), Recipe(win_len=1))
    infos, _, _ = run_step(
        shards,
        beam.FlatMap(list).with_output_types(EncodedBlock),
        before or beam.Map(lambda block: block),
        beam.ParDo(WriteShards(job)),
    )
    return sorted(infos)


def contents(folder):
    found = {}
    for name in names_below(folder):
        with (folder / name).open("rb") as file:
            found[name] = list(read_any_records(file))
    return found


def expect_infos(tmp_path, infos, shards, lost=0):
    """Infos are those of the shards, and true of the files."""
    assert [info.shard for info in infos] == shards
    for info in infos:
        data = (tmp_path / "out" / info.file).read_bytes()
        assert info.file == info.shard.name + SUFFIX
        assert info.bytes == len(data)
        assert info.sha256 == hashlib.sha256(data).hexdigest()
        assert info.examples == info.shard.examples - lost


@pytest.mark.parametrize("lost", [(0,), (2,), (4,), (0, 2, 4)])
def test_lost_windows_leave_the_other_records_in_order(tmp_path, lost):
    (shard,) = shards_of([6])
    blocks = blocks_of(shard, every(2, shard), lost=lost)
    infos = write_placed(tmp_path, [blocks])
    expect_infos(tmp_path, infos, [shard], lost=2 * len(lost))
    # Another run tries again.
    assert find_finished(shard, f"{tmp_path}/out", f"{tmp_path}/work") is None
    kept = [record for block in blocks for record in block.records]
    assert contents(tmp_path / "out") == {shard.name + SUFFIX: kept}


class OneAfterTheOther(beam.PTransform):
    """Ends the fused stage, so that blocks of several shards follow each other."""

    def expand(self, blocks):
        return (
            blocks
            | beam.Map(lambda block: (block.slot.position, block))
            | beam.GroupByKey()
            | beam.FlatMap(lambda keyed: keyed[1])
        )


def test_a_runner_that_mixes_the_blocks_of_shards_is_refused(tmp_path):
    shards = shards_of([9, 9, 9])
    blocks = [blocks_of(shard, every(3, shard)) for shard in shards]
    with raises(Exception, naming="All blocks of a shard must come") as raised:
        write_placed(tmp_path, blocks, before=OneAfterTheOther())
    error = read_run_error(str(tmp_path / "work"))  # which the submitter raises
    assert isinstance(error, IncompleteRun)
    assert str(error) in str(raised.value)
    assert str(error).startswith("The runner gave position")
    whole = {shard.name + SUFFIX: records_of(shard) for shard in shards}
    assert contents(tmp_path / "out").items() <= whole.items()
    assert not list((tmp_path / "work").rglob("*.tfrecord*"))


def test_a_bundle_that_ends_within_a_shard_is_refused(tmp_path):
    good, bad = shards_of([4, 6])
    blocks = [blocks_of(good), blocks_of(bad, [2])[:1]]
    with raises(Exception, naming=[bad.name, "2 of 6", "runner ended a bundle"]):
        write_placed(tmp_path, [*blocks])
    assert (
        contents(tmp_path / "out").items()
        <= {good.name + SUFFIX: records_of(good)}.items()
    )
    assert not list((tmp_path / "work").rglob("*.tfrecord*"))


@pytest.mark.parametrize("mix_seed", [None, 1])
def test_a_shard_that_is_written_twice_is_the_same(tmp_path, mix_seed):
    """Engines compute bundles again, also at the same time."""
    shard = Shard("train/one", "train", 0, 9, "digest", 2, mix_seed)
    blocks = blocks_of(shard, every(4, shard))
    first, again = write_placed(tmp_path, [blocks, blocks])
    assert first == again
    expect_infos(tmp_path, [first], [shard])
    assert names_below(tmp_path / "out") == [first.file]
    assert names_below(tmp_path / "work") == ["receipts/train.one.json"]


# Receipts


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A shard in a folder, and what the sink told of it."""
    folder = tmp_path_factory.mktemp("finished")
    (shard,) = shards_of([5])
    (info,) = write_placed(folder, [blocks_of(shard)])
    return folder, shard, info


def found_in(folder, shard):
    return find_finished(shard, f"{folder}/out", str(folder / "work"))


@pytest.mark.parametrize(
    "change", [{}, {"digest": "other"}, {"examples": 6}, {"number": 1}, {"split": "x"}]
)
def test_a_receipt_is_of_exactly_one_shard(written, change):
    folder, shard, info = written
    found = found_in(folder, shard._replace(**change))
    assert found == (None if change else info)


@pytest.mark.parametrize("change", ["gone", "cut", "longer", "altered", "no receipt"])
def test_a_receipt_without_its_file_counts_for_nothing(written, tmp_path, change):
    whole, shard, info = written
    folder = shutil.copytree(whole, tmp_path / "copy")
    assert found_in(folder, shard) == info
    path = folder / "out" / info.file
    content = path.read_bytes()
    if change == "gone":
        path.unlink()
    elif change == "no receipt":
        (folder / "work" / "receipts" / f"{shard.name}.json").unlink()
    elif change == "altered":
        damage(path)
    else:
        path.write_bytes(content[:-1] if change == "cut" else content + b"\0")
    assert found_in(folder, shard) is None
