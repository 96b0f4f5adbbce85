"""Reads audio files as samples.

In: a file and its name. Out: its length, rate and channels (:mod:`.probe`), ranges of
its samples at any rate (:mod:`.clip_reader`), and hashes that find equal and similar
audio (:mod:`.fingerprint`). Read :mod:`.clip_reader` first.

::

    containers -> decoder -----> opening -> probe           what a file holds
    av_containers -> av_decoder ---^  |
                                      +---> clip_reader     its samples, by range
"""
