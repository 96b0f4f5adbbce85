"""Shards made up by tests, in blocks, as the steps of a job give them to the sink."""

import itertools
from types import SimpleNamespace

import numpy as np

from beam_pipeline.planning.clips import Clip, Reject
from beam_pipeline.write.shard import EncodedBlock, Slot
from beam_pipeline.write.window_rows import BY_KEEP, REJECTED, WindowRows

NO_FEATURES = SimpleNamespace(made={}, specs={})
FORMAT = SimpleNamespace(features=NO_FEATURES)


def record_at(shard, position):
    """The record of a position; records differ in length."""
    return b"%d/%d " % (shard.number, position) * (position % 5 + 1)


def blocks_of(shard, cuts=(), left_out=(), lost=()):
    """A shard in blocks of one clip each, which end at the cuts.

    The clip of a block has the row of its first position. Positions in ``left_out``
    have no record; blocks whose first position is in ``lost`` are lost.
    """
    bounds = sorted({0, *cuts, shard.examples})
    ranges = [range(*pair) for pair in itertools.pairwise(bounds)]
    blocks = []
    for positions in ranges:
        clip = Clip(
            positions.start, 0, "a.wav", "a", shard.split, 9, 9, 1, "WAV", "PCM_16",
            9, 9, len(positions),
        )  # fmt: skip
        at = np.array(positions)
        kept = ~np.isin(at, list(left_out))
        rows = WindowRows.of(at, at * 0 + 1, at * 0)._replace(levels=-at)
        rows = rows.keep_only(kept, BY_KEEP)
        reject = None
        if positions.start in lost:
            rows = rows.keep_only(np.zeros(len(at), bool), REJECTED)
            reject = Reject(
                positions.start, "a.wav", "decode", "UnreadableAudio", "bad"
            )
        records = [record_at(shard, p) for p in at[rows.kept].tolist()]
        slot = Slot(FORMAT, shard, positions.start, clip, 0, len(positions), 1)
        blocks.append(EncodedBlock(slot, rows, records, reject=reject))
    return blocks
