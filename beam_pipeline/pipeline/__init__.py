"""The Beam job. Read :mod:`.graph` first: the whole job on one screen.

In: a :class:`.job.Job`. Out: a finished data set. Each stage is a thin twin of a function of the
same name in another package.
"""
