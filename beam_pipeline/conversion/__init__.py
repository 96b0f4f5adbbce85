"""``convert``: a folder of TFRecords becomes a data set in our layout.

In: a folder of TFRecords, ours or another program's. Out: a data set folder with other
shards, other splits or fewer features. Read :mod:`.convert` first.

::

    files, features, records    clips
    records                  -> corrections -> run.elements
"""
