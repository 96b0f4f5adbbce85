"""Where a job runs: on this machine (:mod:`.local`) or on a runner (:mod:`.engine`).

In: a :class:`beam_pipeline.pipeline.job.Job`. Out: its data set, and progress for whoever
watches. :mod:`.preflight` and :mod:`.dry_run` find mistakes before anything starts. Read
:mod:`.local` first.
"""
