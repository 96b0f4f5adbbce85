"""The Beam job. Read :mod:`.graph` first: the whole job on one screen.

In: a :class:`.job.Job`. Out: a finished data set. Each stage wires a function of another
package to Beam, and adds counters.
"""
