"""A page that shows a data set: what it is, what may be wrong, how it sounds.

::

    metadata, manifest, rejects, windows  --problems-->   what may be wrong
    all of it, and a few examples         --page-->       one HTML file

In: a finished data set. Out: an HTML file, with ``page.html``, ``page.css`` and
``page.js`` in it. Read :mod:`.page` first.
"""

from beam_pipeline.errors import OptionError

DEFAULT_CLIPS = 60
DEFAULT_BYTES = 5_000_000


def check_page(option: str, path: str) -> None:
    """Checks where a page goes, before the work for it; it replaces what is there.

    Raises
    ------
    OptionError
        If the path does not end in .html.
    OutputError
        If no file can be written there.
    """
    from beam_pipeline.storage import files  # --help does without it

    if not path.lower().endswith(".html"):
        raise OptionError(option, "must end in .html", path)
    files.check_writable(path)
