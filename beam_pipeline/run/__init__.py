"""Where a job runs: on this machine (:mod:`.local`) or on a runner (:mod:`.engine`).

In: a :class:`beam_pipeline.dataset.job.Job`. Out: its data set, and progress for a
watcher. :mod:`.workers` runs processes on this machine. Both find mistakes before a job
starts: in the recipe, and in the options of Beam. Read :mod:`.local` first.
"""
