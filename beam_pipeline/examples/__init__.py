"""Examples: their windows, their features, and their bytes.

In: the recipe and windows of samples. Out: the specs and values of features, and
serialised ``tf.train.Example`` messages. Read :mod:`.spec` first: writer and reader
share it.

::

    windows -> window_steps -> features, event_targets -> encoding

:mod:`.format` says what examples share.
:mod:`.wire` is the wire format, and :mod:`.tensor_proto` that of single tensors.
"""
