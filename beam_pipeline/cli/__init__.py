"""The command ``audio-tfrecords``. Read :mod:`.main` first; each command is a function of
:mod:`.commands`, and calls what Python users call.
"""
