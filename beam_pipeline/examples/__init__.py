"""Examples: their windows, their features, and their bytes.

In: the recipe and windows of samples. Out: the specs and values of features, and
serialised ``tf.train.Example`` messages. Read :mod:`.spec` first: writer and reader
share it.

::

    windows -> window_steps -> features, event_targets -> encoding

:mod:`beam_pipeline.codecs` has the encodings, and :mod:`beam_pipeline.storage.wire` the
wire format, of examples and of single tensors.
"""
