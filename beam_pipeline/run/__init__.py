"""Where a job runs: on this machine (:mod:`.local`) or on a runner (:mod:`.engine`).

In: a :class:`beam_pipeline.dataset.job.Job`. Out: its data set, and progress for a
watcher. :mod:`.workers` runs processes on this machine. :mod:`.preflight` finds
mistakes before a job starts. Read :mod:`.local` first.
"""
