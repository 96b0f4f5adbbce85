"""The Beam job. Read :mod:`.graph` first: the whole job on one screen.

In: a :class:`beam_pipeline.dataset.job.Job`. Out: a finished data set. Each stage
passes elements to a function of another package, and adds counters and rejects.
"""
