"""One shard from its clips to records, in blocks of windows, without Beam.

In: a :class:`beam_pipeline.planning.shards.ShardWork`. Out: serialised examples, the
:mod:`.statistics` of their features, and a row for each window (:mod:`.window_rows`).
Read :mod:`.shard` first.
"""
