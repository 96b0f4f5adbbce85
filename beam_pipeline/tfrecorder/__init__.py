"""Records any data that a class describes: each instance becomes one or more examples.

In: a subclass of :class:`.example.Example`, and rows of a CSV file or instances. Out:
GZIP TFRecords in a folder for each split, and a ``tf.data.Dataset`` of tuples. Read
:mod:`.example` first.

::

    example -> factory -> checker
"""

from __future__ import annotations

from beam_pipeline.tfrecorder.example import (
    Example,
    IgnoreExampleException,
    tfrecordable,
)

__all__ = ["Example", "IgnoreExampleException", "tfrecordable"]
