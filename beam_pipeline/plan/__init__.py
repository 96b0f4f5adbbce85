"""From headers to shards, by arithmetic: which window goes to which position of which shard.

In: rows of the inputs. Out: clips (:mod:`.prober`), their order (:mod:`.order`), and the tasks that
write one shard each (:mod:`.segments`). No sample is decoded here, unless the recipe asks
for a clip's peak or fingerprint. Read :mod:`.segments` first.
"""
