"""Reads audio files as samples.

In: a file and its name. Out: its length, rate and channels, and ranges of its samples
at any rate (:mod:`.clip_reader`, which also chooses the decoder), and sketches, by
which an audit finds similar audio (:mod:`.sketch`). Read :mod:`.clip_reader` first.

::

    formats  -> decoder -> clip_reader
    names,      samples    length, samples at any rate
    headers

A decoder is libsndfile, ffmpeg or a function of the user, a loader. What the machine
fails to read is read again (:mod:`.retries`).
"""
