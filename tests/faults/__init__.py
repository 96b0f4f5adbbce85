"""Faults, injected for real: what is killed, full, gone or changed during a run.

    python -m tests.faults --times 30                 every fault, 30 times; a table
    python -m tests.faults --times 100 --only killed  some of them

Each try chooses its moment at random, from its seed. It ends with a data set whose
bytes are those of a run that nothing disturbed, or it is counted as wrong.
``.ci/run`` tries each fault once.
"""
