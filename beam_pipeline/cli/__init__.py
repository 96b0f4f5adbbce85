"""The command ``audio-tfrecords``.

In: the words of a command line. Out: an exit status, and text for people. Read
:mod:`.main` first: it has a class for each command, of which :mod:`.parser` makes the
flags. A command calls what Python users call, and prints what :mod:`.reports` makes of
the result.
"""
