"""``verify``: compares a data set with its metadata, and on request its examples.

Imports what the deep comparison needs only for that: the quick one starts at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.verify import find_problems, load_metadata

if TYPE_CHECKING:
    from beam_pipeline.inputs.in_memory import Source


def verify(
    folder: Folders,
    *,
    deep: bool = False,
    input: Source | None = None,
    sample: int = 100,
    seed: int = 0,
    functions: Iterable[Any] = (),
) -> list[str]:
    """Compares a data set with its metadata; returns a line for each difference.

    ::

        for line in verify("records/", deep=True, input="sounds/"):
            print(line)

    Parameters
    ----------
    folder : path or sequence of paths
        The data set; or several, of which it also says whether they belong together.
    deep : bool
        Whether to parse every example, and to compare it with the tables; see
        :func:`.find_deep_problems`. Default: see :func:`.find_problems`.
    input : as in :func:`beam_pipeline.record`, optional
        What the data set was recorded from, to decode some windows again. This imports
        the modules of transforms that the recipe names.
    sample : int
        How many windows; more than there are means all.
    seed : int
        Chooses these windows.
    functions : iterable, optional
        Functions and classes of this script or notebook that the recipe names.

    Raises
    ------
    InputError
        If there is no data set, or an input cannot be used.
    OptionError
        If ``sample`` or ``seed`` is negative, there is an input without ``deep``, or
        a function has no hash.
    VerificationError
        If the metadata are damaged.
    """
    for option, value in (("sample", sample), ("seed", seed)):
        if value < 0:
            raise OptionError(option, "must not be negative", value)
    if input is not None and not deep:
        raise OptionError("input", "needs `deep`")
    if not isinstance(folder, str | os.PathLike):
        open_data_sets(folder)
        return [
            f"{each}: {line}"
            for each in folder
            for line in verify(
                each,
                deep=deep,
                input=input,
                sample=sample,
                seed=seed,
                functions=functions,
            )
        ]
    name = os.fspath(folder)
    metadata = load_metadata(name)
    if not deep:
        return list(find_problems(name, metadata))
    from beam_pipeline.read.deep_verify import Sample, find_deep_problems

    if input is None:
        return list(find_deep_problems(name, metadata))
    if metadata.recipe is None:
        raise InputError(
            f"{name} was not recorded from audio files, so no input gives its examples "
            "again. Leave `input` out."
        )
    from beam_pipeline.inputs.in_memory import resolved
    from beam_pipeline.transforms.expressions import give_steps

    give_steps(functions)
    with resolved(input, metadata.recipe) as inputs:
        return list(find_deep_problems(name, metadata, Sample(inputs, sample, seed)))
