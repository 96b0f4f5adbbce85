"""The output folder: its files, the claim of a run on it, and the end of a run.

In: what the shards hold, and the rejects. Out: ``metadata.json``, ``schema.pbtxt``,
``manifest.parquet`` and ``rejected.jsonl``. Read :mod:`.finish` first.

::

    claim -> work_folder -> finish -> metadata, schema, manifest, rejects

:mod:`.original_folder` describes a folder of another library, tf_dataset.
"""
