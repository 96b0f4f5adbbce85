"""Replaces a data set in a local output by a new one, which is whole before::

    _work/new/      the new data set; whole once its metadata.json is there
    _work/whole/    the same folder, when the data set of before is deleted

A run that is killed before ``new`` is whole leaves the data set of before. After that,
the next run that claims the output finishes the switch, whatever its job is. Only on
this machine: a store cannot rename.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_pipeline.dataset.folders import METADATA, NEW, is_ours
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER, Claim

WHOLE = "whole"


def new_folder(output: str) -> str:
    """The folder of a data set that will replace the one in a local output."""
    return files.join(output, WORK_FOLDER, NEW)


def put_in_place(written: str, output: str, claim: Claim) -> None:
    """Makes a whole data set the one in a local output."""
    claim.check()
    os.rename(written, new_folder(output))
    finish_switch(output, claim)


def finish_switch(output: str, claim: Claim) -> bool:
    """Puts the new data set in its place, if it is whole; returns whether it was.

    Parameters
    ----------
    claim : Claim
        The claim on the output.
    """
    if not files.is_local(output):
        return False
    new, whole = new_folder(output), files.join(output, WORK_FOLDER, WHOLE)
    if os.path.exists(files.join(new, METADATA)):
        delete_data_set(output, list(files.list_files(output)), claim)
        claim.check()
        os.rename(new, whole)
    if not os.path.isdir(whole):
        return False
    # A run that slept may have renamed a folder that was not whole.
    if not os.path.exists(files.join(output, METADATA)):
        # The metadata last: then the data set is complete.
        for name in sorted(files.list_files(whole), key=METADATA.__eq__):
            claim.check()  # a run that took the output over has moved the file itself
            files.move(files.join(whole, name), files.join(output, name))
    claim.discard(whole, is_folder=True)
    return True


def delete_data_set(output: str, held: Sequence[str], claim: Claim) -> None:
    """Deletes the files of a data set, the metadata first: then it is not complete."""
    for name in sorted(filter(is_ours, held), key=METADATA.__ne__):
        claim.discard(files.join(output, name))
