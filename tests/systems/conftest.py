"""Whole systems: stores, engines, faults, notebooks and corpora; they take minutes.

``bash launch/test.sh tests/systems`` runs them. Without arguments, the command leaves
them out.
"""

from tests.runs.conftest import corpus, out

__all__ = ["corpus", "out"]
