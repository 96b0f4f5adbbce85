"""From headers to shards, by arithmetic: which example goes to which position.

In: rows of the inputs. Out: clips (:mod:`.prober`), their order, and one task for each
shard (:mod:`.shards`). Nothing is decoded here, unless the recipe needs what only the
samples of a whole clip say. Read :mod:`.shards` first.

::

    SourceRow -> prober -> Clip -> shards: buckets -> segments -> ShardWork
                                     |
                                  PlanSummary            the output of ``plan``

Clips, those that end or stall their processes, too, are in :mod:`.clips`.
:mod:`.balance` moves groups between splits, so that each has its share of each class.
"""
