"""Which clips there are, and what names and tables say of them; opens no audio.

In: ``input`` and the recipe. Out: one :class:`.columns.SourceRow` for each clip, with
its label, group, split and columns. :mod:`.table_files` reads tables, :mod:`.columns`
says what each column means. Read :mod:`.listing` first.

::

    sources -> listing -> columns    kind of each input -> its files -> one row each
                           ^
             table_files, splits, event_files
"""
