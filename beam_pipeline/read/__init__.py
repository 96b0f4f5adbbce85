"""Reads finished data sets: as ``tf.data``, as numpy, as text, and to check them.

In: a finished data set. Out: a ``tf.data.Dataset`` (:mod:`.replay`), any example as
numpy arrays (:mod:`.records`) and batches of them (:mod:`.batches`), examples drawn
from several data sets (:func:`.mix`), text, pictures and HTML of some examples
(:mod:`.example_view`), their sounds (:mod:`.show`), damage and other sources
(:mod:`.verify`), leaks between splits (:mod:`.audit`). Read :mod:`.replay`
first. Nothing here imports Beam.
"""
