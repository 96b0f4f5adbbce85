"""The command ``audio-tfrecords``.

In: the words of a command line. Out: an exit status, and text for people. Read
:mod:`.main` first. Each command is a function of :mod:`.commands`; it calls what Python
users call, and prints what :mod:`.reports` makes of the result.
"""
