"""Audio files as samples.

In: a file and its name. Out: its length, rate and channels (:mod:`.probe`), and ranges
of its samples at any rate (:mod:`.clip_reader`). Read :mod:`.clip_reader` first.

::

    containers -> decoder -> probe           what a file holds
                     |
                     +-> clip_reader         its samples, by range
"""
