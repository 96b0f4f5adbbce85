"""Reads audio files as samples.

In: a file and its name. Out: its length, rate and channels (:mod:`.probe`, which also
chooses the decoder), ranges of its samples at any rate (:mod:`.clip_reader`), and what
finds equal and similar audio (:mod:`.sketch`). Read :mod:`.clip_reader` first.

::

    formats, integrity -> decoder -> probe -> clip_reader
    names    headers                 length   samples

:mod:`.loader` reads files by a function of the user, and :mod:`.retrying` reads again
what the machine failed to read.
"""
