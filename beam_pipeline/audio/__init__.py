"""Reads audio files as samples.

In: a file and its name. Out: its length, rate and channels (:mod:`.probe`), ranges of
its samples at any rate (:mod:`.clip_reader`), and hashes that find equal and similar
audio (:mod:`.fingerprint`). Read :mod:`.clip_reader` first.

::

    containers -> integrity -> formats -> decoder, av_decoder -> opening
                                                                    |
        probe: what a file holds       clip_reader: its samples  <--+

:mod:`.loaded` reads files by a function of the user, and :mod:`.retrying` reads again
what the machine failed to read.
"""
