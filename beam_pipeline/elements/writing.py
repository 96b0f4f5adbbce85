"""Writes the elements of one split, one block after the other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.dataset.element_set import (
    BlockWriter,
    ElementSet,
    Encoded,
    Seen,
    join_elements,
    observed_specs,
)
from beam_pipeline.dataset.job import element_output
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.progress import progress_bar
from beam_pipeline.errors import OptionError, check_feature
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import Declared, WholeNumber, parameter
from beam_pipeline.storage import files
from beam_pipeline.storage.files import temporary_folder
from beam_pipeline.write.member_files import ShardSizes


class Block(NamedTuple):
    """Some elements: their number, and their features as the encoder takes them."""

    size: int
    columns: Mapping[str, Any]


class Request(Declared, kw_only=False):
    """What functions that record elements are asked for; see :func:`.record_dataset`.

    Attributes
    ----------
    sizes : ShardSizes
    progress : bool or None
        Whether to show a progress bar; None: only in a terminal or a notebook.
    """

    output: str | os.PathLike[str]
    sizes: ShardSizes
    num_elems: int | None = parameter(None, WholeNumber(0))
    encodings: Mapping[str, str] | None = None
    sequences: Sequence[str] = ()
    overwrite: bool = False
    progress: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns what decides the data set, for the metadata."""
        return {
            "num_elems": self.num_elems,
            **self.sizes.to_json(),
            "encodings": dict(self.encodings or {}),
            "sequences": list(self.sequences),
        }


def write_elements(
    request: Request,
    elements: Elements,
    specs: Mapping[str, FeatureSpec],
    draw: Callable[[Mapping[str, FeatureSpec]], Iterator[Block]],
    total: int | None,
    settle: Callable[[Iterable[FeatureSpec], Seen], list[FeatureSpec]] = observed_specs,
) -> str:
    """Writes blocks of elements as a data set with one split; returns its folder.

    Parameters
    ----------
    elements : Elements
        What the metadata say of them; their options are added to.
    draw : callable
        Draws the blocks, from the specs with the encodings that are asked for.
    total : int or None
        The number of elements that there are; None if it is not known.
    settle : callable
        See :class:`.ElementSet`.
    """
    specs = with_encodings(specs, request.encodings or {}, request.sequences)
    options = {**elements.options, **request.to_json()}
    elements = replace(elements, options=options)
    count, sizes = 0, request.sizes
    if total is not None and request.num_elems is not None:
        total = min(total, request.num_elems)
    with (
        element_output(
            request.output, elements.recorded_by, request.overwrite
        ) as target,
        # Files are not uploaded before they are shards.
        local_drafts(target.drafts) as drafts,
        progress_bar(total, request.progress) as bar,
    ):
        encoder = ExampleEncoder(specs.values())
        known = sizes.known(total)
        with BlockWriter(specs.values(), sizes, drafts, known) as writer:
            for size, columns in draw(specs):
                records = encoder.encode(size, columns)
                writer.add(Encoded(DEFAULT_SPLIT, records, columns))
                bar.set_postfix({"file": writer.files() + 1}, refresh=False)
                bar.update(size)
                count += size
            result = writer.finish(0, target.receipts)
        if request.num_elems is not None and count < request.num_elems:
            warnings.warn(
                f"num_elems is {request.num_elems}, but there were only {count} "
                "elements. They are written. To repeat a tf.data.Dataset, give "
                "dataset.repeat().",
                stacklevel=3,
            )
        job = ElementSet(
            target, tuple(specs.values()), sizes, (DEFAULT_SPLIT,), elements,
            settle=settle,
        )  # fmt: skip
        join_elements(job, [result])
        return files.given_path("output", request.output)


@contextmanager
def local_drafts(folder: str) -> Iterator[str]:
    """Returns a folder on this machine for files that are moved later.

    It is ``folder`` itself if that is local, so that moving copies no bytes.
    """
    if files.is_local(folder):
        yield folder
        return
    with temporary_folder() as drafts:
        yield drafts


def with_encodings(
    specs: Mapping[str, FeatureSpec],
    encodings: Mapping[str, str],
    sequences: Sequence[str],
) -> dict[str, FeatureSpec]:
    """Returns the specs with the encodings that the user wants.

    Raises
    ------
    OptionError
        If no feature has this name, or its values cannot have this encoding.
    """
    made = dict(specs)
    for name, encoding in encodings.items():
        check_feature("encodings", name, specs)
        problem = encoding_problem(specs[name], encoding)
        if problem is not None:
            raise OptionError(f"encodings: {name}", problem, encoding)
        made[name] = replace(specs[name], encoding=encoding)
    for name in sequences:
        check_feature("sequences", name, specs)
        spec = made[name]
        if not spec.shape or None in spec.shape[1:]:
            raise OptionError(
                "sequences",
                "needs arrays with at least one axis, the steps; the sizes of the "
                "other axes must be the same in all examples",
                f"{spec.name} of shape {spec.shape}",
            )
        made.pop(spec.shape_in or "", None)
        shape = (None, *spec.shape[1:])
        made[name] = replace(spec, sequence=True, shape=shape, shape_in=None)
    return made
