"""sink.py against Beam's own sink and reader, and with blocks in any order."""

import hashlib
import itertools
import json
import random

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.pipeline.sink import (
    WriteToTFRecord,
    find_finished,
    join_parts,
)
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.storage.tfrecord import SUFFIX, read_records, scan_members
from beam_pipeline.write.stretches import PlacedRecords, Stretch, StretchFile
from tests.raising import raises

pytestmark = pytest.mark.runs

RECORDS = [b"record %d " % i * (i + 1) for i in range(25)]


def run(build):
    """Runs a pipeline in memory."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    build(pipeline)
    pipeline.run().wait_until_finish()


def names_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# Plain bytes: as Beam's


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_shards": 1},
        {"num_shards": 3},
        {"file_name_suffix": ".tfrecord.gz"},
        {"file_name_suffix": ".tfrecord.gz", "num_shards": 3},
        {"compression_type": "gzip", "num_shards": 2, "file_name_suffix": ".gz"},
        {"num_shards": 2, "shard_name_template": "-S-of-N", "file_name_suffix": ".tfr"},
        {"shard_name_template": "", "file_name_suffix": ".gz"},
        {"file_name_suffix": ".bz2", "num_shards": 1},
    ],
    ids=str,
)
def test_plain_bytes_are_written_as_beam_writes_them(tmp_path, options):
    def write(pipeline):
        records = pipeline | beam.Create(RECORDS, reshuffle=False)
        for name, transform in [("ours", WriteToTFRecord),
                                ("beam", beam.io.WriteToTFRecord)]:  # fmt: skip
            folder = tmp_path / name
            folder.mkdir()
            records | name >> transform(str(folder / "part"), **options)

    run(write)
    names = names_below(tmp_path / "ours")
    assert names == names_below(tmp_path / "beam")
    assert len(names) == (options.get("num_shards") or 1)

    def compare(pipeline):
        kind = options.get("compression_type", "auto")
        read = {
            name: pipeline
            | name
            >> beam.io.ReadFromTFRecord(
                str(tmp_path / name / "*"), compression_type=kind
            )
            for name in ("ours", "beam")
        }
        assert_that(read["ours"], equal_to(RECORDS), "as written")
        assert_that(read["beam"], equal_to(RECORDS), "as Beam writes")

    run(compare)


def test_gzip_of_plain_bytes_holds_no_time_and_no_name(tmp_path):
    def write(pipeline):
        records = pipeline | beam.Create(RECORDS, reshuffle=False)
        records | WriteToTFRecord(
            str(tmp_path / "x"), file_name_suffix=".gz", num_shards=1
        )

    run(write)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes()[3:8] == bytes(5)
    with path.open("rb") as file:
        assert sorted(read_records(file)) == sorted(RECORDS)


@pytest.mark.parametrize("limit", [1, 40, 100, 10**6])
def test_members_of_plain_bytes_hold_whole_records(tmp_path, limit):
    def write(pipeline):
        records = pipeline | beam.Create(RECORDS, reshuffle=False)
        records | WriteToTFRecord(
            str(tmp_path / "x"),
            file_name_suffix=SUFFIX,
            num_shards=1,
            member_bytes=limit,
        )

    run(write)
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        members = list(scan_members(file))
    assert sum(member.records for member in members) == len(RECORDS)
    for member in members:
        assert member.is_whole
        assert member.records == 1 or member.size <= limit
    for one, other in itertools.pairwise(members):
        assert one.size + other.size > limit


def test_a_coder_encodes_the_records(tmp_path):
    def write(pipeline):
        words = pipeline | beam.Create(["cat", "dög"], reshuffle=False)
        words | WriteToTFRecord(
            str(tmp_path / "x"), beam.coders.StrUtf8Coder(), SUFFIX, num_shards=1
        )

    run(write)
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        assert sorted(read_records(file)) == [b"cat", "dög".encode()]


def test_it_is_beams():
    transform = WriteToTFRecord("prefix")
    assert isinstance(transform, beam.io.WriteToTFRecord)
    assert isinstance(transform._sink, beam.io.filebasedsink.FileBasedSink)


# Placed records


def shards_of(sizes):
    return [
        Shard(f"records-{k:05d}-of-{len(sizes):05d}", "records", k, size, f"digest {k}")
        for k, size in enumerate(sizes)
    ]


def records_of(shard):
    return [b"%d/%d" % (shard.number, i) for i in range(shard.examples)]


def blocks_of(shard, size, lost=()):
    """A shard in blocks of a size, in order; those in ``lost`` have no records."""
    records = records_of(shard)
    return [
        PlacedRecords(shard, at, len(some), () if number in lost else some)
        for number, at in enumerate(range(0, shard.examples, size))
        if (some := records[at : at + size])
    ]


def write_placed(tmp_path, bundles, expected=None, before=None):
    """Writes blocks, each list in a bundle of its own; returns the ShardInfos."""
    found = []

    def build(pipeline):
        infos = (
            pipeline
            | beam.Create(bundles, reshuffle=True)
            | beam.FlatMap(list)
            | (before or beam.Map(lambda block: block))
            | WriteToTFRecord(
                f"{tmp_path}/out/",
                file_name_suffix=SUFFIX,
                work_folder=str(tmp_path / "work"),
            )
        )
        path = str(tmp_path / "infos")
        (
            infos
            | beam.Map(lambda i: json.dumps([i.shard, *i[1:]]))
            | beam.io.WriteToText(path, num_shards=1, shard_name_template="")
        )

    (tmp_path / "out").mkdir(exist_ok=True)
    run(build)
    for line in (tmp_path / "infos").read_text().splitlines():
        shard, *rest = json.loads(line)
        found.append(ShardInfo(Shard(*shard), *rest))
    return sorted(found)


def contents(folder):
    found = {}
    for name in names_below(folder):
        with (folder / name).open("rb") as file:
            found[name] = list(read_records(file))
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


@pytest.mark.parametrize("block", [1, 6, 7, 8])
def test_a_shard_in_order_is_written_in_one_go(tmp_path, block):
    shards = shards_of([7, 1, 7, 3])
    blocks = [b for shard in shards for b in blocks_of(shard, block)]
    infos = write_placed(tmp_path, [blocks])
    expect_infos(tmp_path, infos, shards)
    assert contents(tmp_path / "out") == {
        shard.name + SUFFIX: records_of(shard) for shard in shards
    }
    assert names_below(tmp_path / "work") == [
        f"receipts/{shard.name}.json" for shard in shards
    ]


def test_how_blocks_are_cut_changes_no_byte(tmp_path):
    shards = [Shard(f"shard-{size}", "records", 0, 50) for size in (1, 7, 50)]
    blocks = [
        b
        for shard, size in zip(shards, (1, 7, 50), strict=True)
        for b in blocks_of(shard, size)
    ]
    infos = write_placed(tmp_path, [blocks])
    assert len(infos) == 3
    assert len({info.sha256 for info in infos}) == 1


def test_a_shard_in_a_folder_of_its_split(tmp_path):
    shard = Shard("train/train-00000-of-00001", "train", 0, 3)
    (info,) = write_placed(tmp_path, [blocks_of(shard, 2)])
    assert info.file == "train/train-00000-of-00001.tfrecord.gz"
    assert contents(tmp_path / "out") == {info.file: records_of(shard)}
    assert find_finished(shard, f"{tmp_path}/out/", str(tmp_path / "work"))


@pytest.mark.parametrize("seed", range(2))
def test_blocks_in_any_order_and_bundle_are_the_same_records(tmp_path, seed):
    shards = shards_of([1, 9, 20, 2])
    blocks = [b for shard in shards for b in blocks_of(shard, 3)]
    random.Random(seed).shuffle(blocks)
    infos = write_placed(
        tmp_path, [[block] for block in blocks], before=beam.Reshuffle()
    )
    expect_infos(tmp_path, infos, shards)
    assert contents(tmp_path / "out") == {
        shard.name + SUFFIX: records_of(shard) for shard in shards
    }


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)])
def test_one_bundle_out_of_order(tmp_path, order):
    shards = shards_of([9, 4])
    first = blocks_of(shards[0], 3)
    blocks = [first[i] for i in order]
    blocks.insert(1, blocks_of(shards[1], 4)[0])
    expect_infos(tmp_path, write_placed(tmp_path, [blocks]), shards)
    assert contents(tmp_path / "out") == {
        shard.name + SUFFIX: records_of(shard) for shard in shards
    }


@pytest.mark.parametrize("backwards", [False, True])
def test_lost_windows_leave_the_other_records_in_order(tmp_path, backwards):
    lost = [(0,), (1,), (2,), (0, 1, 2)]
    shards = shards_of([6] * len(lost))
    blocks = [
        b
        for shard, some in zip(shards, lost, strict=True)
        for b in blocks_of(shard, 2, some)
    ]
    infos = write_placed(tmp_path, [blocks[::-1] if backwards else blocks])
    for info, some in zip(infos, lost, strict=True):
        expect_infos(tmp_path, [info], [info.shard], lost=2 * len(some))
        # Another run tries again.
        assert find_finished(info.shard, f"{tmp_path}/out/", f"{tmp_path}/work") is None
    assert contents(tmp_path / "out") == {
        shard.name + SUFFIX: [r for b in blocks if b.shard == shard for r in b.records]
        for shard in shards
    }


@pytest.mark.parametrize(
    "changed",
    [
        lambda blocks: blocks[1:],
        lambda blocks: blocks[:-1],
        lambda blocks: [blocks[0], blocks[2]],
        lambda blocks: [blocks[0], *blocks],
        lambda blocks: [*blocks[:2], *blocks[1:]],
        lambda blocks: [blocks[0], blocks[2], blocks[1], blocks[1]],
        lambda blocks: [blocks[1]],
    ],
    ids=["first", "last", "middle", "first twice", "middle twice", "two twice", "only"],
)
def test_a_shard_with_gaps_or_repeats_is_named(tmp_path, changed):
    good, bad = shards_of([4, 6])
    blocks = [*blocks_of(good, 2), *changed(blocks_of(bad, 2))]
    with raises(Exception, naming="records-00001-of-00002") as raised:
        write_placed(tmp_path, [blocks])
    assert "IncompleteRun" in repr(raised.value) + str(raised.value)
    whole = {s.name + SUFFIX: records_of(s) for s in (good, bad)}
    assert contents(tmp_path / "out").items() <= whole.items()


def test_a_block_beyond_the_end_of_its_shard_is_an_error(tmp_path):
    shard, other = shards_of([6, 2])
    beyond = PlacedRecords(shard, 4, 3, [b"4", b"5", b"6"])
    blocks = [*blocks_of(shard, 4)[:1], beyond, *blocks_of(other, 2)]
    words = ["records-00000-of-00002", 6]
    with raises(Exception, naming=words):
        write_placed(tmp_path, [blocks])
    assert names_below(tmp_path / "out") == []
    assert not list((tmp_path / "work").rglob("records-00000*"))


def part(shard, position, span, path="nowhere"):
    nothing = np.zeros(0, np.int64)
    return StretchFile(
        shard, position, span, span, 0, None, path, 0, "", 0, [], [], nothing
    )


@pytest.mark.parametrize(
    ("spans", "facts"),
    [
        ([(0, 2)], ["2", "4"]),
        ([(2, 2)], ["0", "2"]),
        ([(0, 1), (2, 2)], ["1", "2"]),
        ([(0, 2), (0, 2), (2, 2)], ["2", "0"]),
        ([(0, 2), (1, 3)], ["2", "1"]),
        ([(0, 3), (3, 2)], ["5", "4"]),
    ],
)
def test_parts_must_fill_the_shard_exactly(tmp_path, spans, facts):
    (shard,) = shards_of([4])
    parts = [part(shard, *span) for span in reversed(spans)]
    with raises(IncompleteRun, naming=[shard.name, *facts]):
        join_parts((shard.name, parts), str(tmp_path), SUFFIX, str(tmp_path))
    assert names_below(tmp_path) == []


@pytest.mark.parametrize("spans", [[(0, 4)], [(0, 1), (1, 3)], [(0, 0), (0, 4)]])
def test_joining_twice_does_no_harm(tmp_path, spans):
    (shard,) = shards_of([4])
    records, parts = records_of(shard), []
    for position, span in spans:
        path = str(tmp_path / f"part {position} {span}{SUFFIX}")
        stretch = Stretch(shard, position, path)
        some = records[position : position + span]
        stretch.write(PlacedRecords(shard, position, span, some))
        parts.append(stretch.close())
    prefix = f"{tmp_path}/out/"
    args = ((shard.name, parts), prefix, SUFFIX, str(tmp_path / "work"))
    first = join_parts(*args)
    assert join_parts(*args) == first
    assert contents(tmp_path / "out") == {first.file: records}
    expect_infos(tmp_path, [first], [shard])


# Receipts


def finish_one(tmp_path):
    (shard,) = shards_of([5])
    (info,) = write_placed(tmp_path, [blocks_of(shard, 5)])
    return shard, info, (f"{tmp_path}/out/", str(tmp_path / "work"))


def test_a_finished_shard_is_found(tmp_path):
    shard, info, places = finish_one(tmp_path)
    assert find_finished(shard, *places) == info


@pytest.mark.parametrize(
    "change", [{"digest": "other"}, {"examples": 6}, {"number": 1}, {"split": "x"}]
)
def test_a_receipt_is_of_exactly_one_shard(tmp_path, change):
    shard, _, places = finish_one(tmp_path)
    assert find_finished(shard._replace(**change), *places) is None


@pytest.mark.parametrize("change", ["gone", "cut", "longer", "altered", "no receipt"])
def test_a_receipt_without_its_file_counts_for_nothing(tmp_path, change):
    shard, info, places = finish_one(tmp_path)
    path = tmp_path / "out" / info.file
    if change == "gone":
        path.unlink()
    elif change == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "altered":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif change == "longer":
        path.write_bytes(path.read_bytes() + b"\0")
    else:
        (tmp_path / "work" / "receipts" / f"{shard.name}.json").unlink()
    assert find_finished(shard, *places) is None


def test_writing_again_replaces_the_shard(tmp_path):
    (shard,) = shards_of([5])
    write_placed(tmp_path, [blocks_of(shard, 5, lost=(0,))])
    assert contents(tmp_path / "out") == {shard.name + SUFFIX: []}
    write_placed(tmp_path, [blocks_of(shard, 5)])
    assert contents(tmp_path / "out") == {shard.name + SUFFIX: records_of(shard)}
