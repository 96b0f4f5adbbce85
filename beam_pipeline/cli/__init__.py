"""The command ``audio-tfrecords``.

In: words of the command line. Out: an exit status, and text for people. Read
:mod:`.main` first; each command is a function of :mod:`.commands` and calls what Python
users call.
"""
