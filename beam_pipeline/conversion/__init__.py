"""``convert``: a folder of TFRecords becomes a data set in our layout.

In: a folder of TFRecords, ours or another program's. Out: a data set folder with other
shards, other splits or fewer features. Read :mod:`.convert` first.

::

    records -> corrections  -> convert -> run.elements
    files      labels, drop    records

:mod:`.records` finds files and what they hold; :func:`.replay_files` there reads them
as they are.
"""
