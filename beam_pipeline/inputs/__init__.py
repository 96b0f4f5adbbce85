"""Which clips there are, and what their names and tables say; no audio is opened.

In: ``input`` and the recipe. Out: one :class:`.rows.SourceRow` for each clip, with its
label, group, split and columns. Read :mod:`.listing` first.

::

    sources -> listing -> rows       what a path means -> its files -> one row each
                           ^
        tables, columns, labels, splits, event_files, duplicates
"""
