"""The output folder: its files, how a job starts there, and several of them as one.

In: what the shards hold, and the rejects. Out: ``metadata.json``, ``schema.pbtxt``,
``manifest.parquet`` and ``rejected.jsonl``, which :mod:`beam_pipeline.pipeline.finish`
writes at the end of a run. Read :mod:`.metadata` first.

::

    job -> side_by_side -> tables -> metadata -> folders
"""
