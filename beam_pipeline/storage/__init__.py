"""Reads and writes bytes on this machine, in object stores and on Beam's file systems.

In: paths and bytes. Out: files, listings and TFRecord files. Read :mod:`.files` first.
For each path it chooses between the local disk, :mod:`.object_store` (``gs://``,
``s3://``) and :mod:`.beam_filesystem`. :mod:`.tfrecord` frames and compresses records,
and :mod:`.pages` keeps on disk what memory should not hold and what workers pass on.
:mod:`.claim` lets one run at a time write into an output.
"""
