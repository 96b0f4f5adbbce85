"""Bytes in and out, wherever they are: on this machine, in an object store, or on a
file system of Beam.

In: paths and bytes. Out: files, listings and TFRecord files. Read :mod:`.files` first: it
alone is called from other packages, and chooses between the disk, :mod:`.object_store`
(``gs://``, ``s3://``) and :mod:`.beam_filesystem`. :mod:`.tfrecord` frames records and
writes GZIP.
"""
