"""A page that shows a data set: what it is, what may be wrong, how it sounds.

::

    metadata, manifest, rejects, windows  --problems-->   what may be wrong
    all of it, and a few examples         --page-->       one HTML file

In: a finished data set. Out: an HTML file, with ``page.html``, ``page.css`` and
``page.js`` in it. Read :mod:`.page` first.
"""

DEFAULT_CLIPS = 60
DEFAULT_BYTES = 5_000_000
