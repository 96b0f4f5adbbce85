"""One shard from its clips to records, in blocks of windows, without Beam.

In: a :class:`beam_pipeline.planning.shards.ShardWork`. Out: serialised examples, and
the statistics of their features. Read :mod:`.blocks` first.
"""
