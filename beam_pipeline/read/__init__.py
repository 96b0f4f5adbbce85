"""What comes of a data set: examples again, pictures, checks.

In: a finished data set. Out: a ``tf.data.Dataset`` (:mod:`.replay`), some examples
(:mod:`.peek`), pictures (:mod:`.plots`), damage (:mod:`.verify`) and leaks between splits
(:mod:`.audit`). Read :mod:`.replay` first. Nothing here imports Beam.
"""
