"""The output folder: what belongs there, who may write it, when it is complete.

In: what the shards held and what was rejected. Out: ``metadata.json``,
``schema.pbtxt``, ``manifest.parquet`` and ``rejected.jsonl``. Read :mod:`.finish` first.

::

    claim -> work_folder -> finish -> metadata, schema, manifest, rejects
"""
