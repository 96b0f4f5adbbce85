"""Reads finished data sets: as ``tf.data``, as text, as pictures, and to check them.

In: a finished data set. Out: a ``tf.data.Dataset`` (:mod:`.replay`), some examples
(:mod:`.show`), pictures (:mod:`.plots`), damage (:mod:`.verify`), leaks between splits
(:mod:`.audit`). :mod:`.original_records` reads the folders of another library. Read
:mod:`.replay` first. Nothing here imports Beam.
"""
