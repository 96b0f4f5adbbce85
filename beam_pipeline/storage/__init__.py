"""Bytes in and out, wherever they lie: this machine, an object store, a file system of Beam.

In: paths and bytes. Out: files, listings and TFRecord files. Read :mod:`.files` first: the
other packages call it alone, and it chooses between the disk, :mod:`.object_store` (``gs://``
and ``s3://``) and :mod:`.beam_filesystem`. :mod:`.tfrecord` frames records and writes GZIP.
"""
