"""Examples: their windows, their features, and their bytes.

In: the recipe and windows of samples. Out: the specs and values of features, and
serialised ``tf.train.Example`` messages. Read :mod:`.spec` first: writer and reader
share it.

::

    windows -> window_steps -> features, event_targets -> serialisation

:mod:`beam_pipeline.encodings` says how an example holds an array, and
:mod:`.serialisation` writes and parses its bytes.
"""
