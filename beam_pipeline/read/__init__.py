"""Reads finished data sets: as ``tf.data``, as numpy, as text, and to check them.

In: a finished data set. Out: a ``tf.data.Dataset`` (:mod:`.replay`), any example as
numpy arrays (:mod:`.records`) and batches of them (:mod:`.batches`), several data sets
as one (:mod:`.mixing`), some examples (:mod:`.show`), pictures (:mod:`.plots`), damage
(:mod:`.verification`), leaks between splits (:mod:`.audit`). What each framework for
training reads is made by :mod:`.framework_methods`; :mod:`.example_view` shows an
example in a notebook. :mod:`.original_records` reads the folders of another library.
Read :mod:`.replay` first. Nothing here imports Beam.
"""
