"""Data sets of elements: of a ``tf.data.Dataset``, or of an iterable of dicts.

In: elements of any structure. Out: a data set folder, as of audio files. Read
:mod:`.record_examples` first: both kinds of elements end in its ``write_elements``.

::

    tf.data.Dataset    record_dataset   \\
                                         write_elements -> shards, metadata
    dicts of arrays    record_examples  /
    one dict           encode_example    -> bytes -> write_records
"""
