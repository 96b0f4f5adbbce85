"""What comes of a data set: examples again, pictures, checks.

In: a finished data set. Out: a ``tf.data.Dataset`` (:mod:`.replay`), some examples (:mod:`.peek`),
pictures (:mod:`.plots`), differences (:mod:`.verify`) and leaks (:mod:`.audit`). Nothing here imports Beam.
"""
