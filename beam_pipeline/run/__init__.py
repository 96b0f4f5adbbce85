"""Where a job runs: on this machine (:mod:`.local`) or on a runner (:mod:`.engine`).

In: a :class:`beam_pipeline.pipeline.job.Job`. Out: its data set, and progress for a
watcher. :mod:`.local_plan` reads headers on this machine. :mod:`.preflight` and
:mod:`.dry_run` find mistakes before a job starts. Read :mod:`.local` first.
"""
