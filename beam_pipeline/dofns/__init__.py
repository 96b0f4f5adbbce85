"""Steps for your own Beam pipeline: ``Probe``, ``CutWindows`` and ``Transform``.

::

    path --Probe--> dict --CutWindows--> a dict for each window --Transform--> dict
                      |                     |                         |
                      +---- rejects --------+-------------------------+

In: paths of audio files, or dicts with the path as ``filepath``, whose other keys stay.
Out: dicts with the samples and features that :func:`beam_pipeline.record` would store,
because the same functions compute them. Read :mod:`.clips` first;
``docs/in-your-own-pipeline.md`` shows a whole pipeline.
"""

from beam_pipeline.dofns.clips import REJECTS, CutWindows, Probe
from beam_pipeline.dofns.transform import Transform

__all__ = ["REJECTS", "CutWindows", "Probe", "Transform"]
