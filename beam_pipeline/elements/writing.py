"""Writes the elements of one split, one block after the other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.dataset.element_set import (
    ElementSet,
    element_output,
    join_elements,
)
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.progress import in_notebook, make_bar
from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.encoding import ExampleEncoder, SequenceEncoder
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder
from beam_pipeline.write.element_blocks import BlockWriter, Encoded
from beam_pipeline.write.member_files import ShardSizes

# Compressing takes longer than all else; it leaves the interpreter to this thread.
COMPRESSING_THREADS = 2


class Block(NamedTuple):
    """Some elements: their number, and their features as the encoder takes them."""

    size: int
    columns: Mapping[str, Any]


def encoder_for(specs: Iterable[FeatureSpec]) -> ExampleEncoder | SequenceEncoder:
    """Returns the encoder: of SequenceExamples, if a feature is a sequence."""
    specs = list(specs)
    sequences = any(spec.sequence for spec in specs)
    return SequenceEncoder(specs) if sequences else ExampleEncoder(specs)


def write_elements(
    blocks: Iterator[Block],
    specs: Mapping[str, FeatureSpec],
    output: str | os.PathLike[str],
    elements: Elements,
    sizes: ShardSizes,
    *,
    total: int | None,
    overwrite: bool,
    progress: bool | None,
) -> str:
    """Writes blocks of elements as a data set with one split; returns its folder.

    Parameters
    ----------
    blocks : iterator of Block
    specs : mapping
        The specs of the features, by name. May widen while blocks are drawn; the
        encoding of a feature does not change.
    total : int or None
        The number of elements; None if it is not known.
    progress : bool or None
        Whether to show a progress bar; None: only in a terminal or a notebook.
    """
    with (
        element_output(output, elements.recorded_by, overwrite) as target,
        # Files are not uploaded before they are shards.
        local_drafts(target.drafts) as drafts,
        ThreadPoolExecutor(COMPRESSING_THREADS) as pool,
        progress_bar(total, progress) as bar,
    ):
        encoder, known = encoder_for(specs.values()), sizes.known(total)
        with BlockWriter(specs.values(), sizes, drafts, known, pool) as writer:
            for count, columns in blocks:
                records = encoder.encode(count, columns)
                writer.add(Encoded(DEFAULT_SPLIT, records, columns))
                bar.set_postfix({"file": writer.files() + 1}, refresh=False)
                bar.update(count)
            result = writer.finish(0, target.receipts)
        settled = tuple(specs.values())
        job = ElementSet(
            target, settled, sizes, (DEFAULT_SPLIT,), elements,
            settle=lambda widened, _: list(widened),
        )  # fmt: skip
        join_elements(job, [result])
        return files.absolute(os.fspath(output))


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


def progress_bar(
    total: int | None,
    progress: bool | None,
    desc: str = "record",
    unit: str = " elements",
) -> Any:
    """Returns a progress bar: over elements, or what else ``unit`` names.

    ``progress`` is whether there is one; None: in a terminal and in a notebook.
    """
    shown = progress if progress is not None else in_notebook() or None
    return make_bar(
        total=total, unit=unit, desc=desc, disable=None if shown is None else not shown
    )


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
    for name in [*encodings, *sequences]:
        option = "encodings" if name in encodings else "sequences"
        check_feature(option, name, specs)
    for name, encoding in encodings.items():
        problem = encoding_problem(specs[name], encoding)
        if problem is not None:
            raise OptionError(f"encodings: {name}", problem, encoding)
        made[name] = replace(specs[name], encoding=encoding)
    for name in sequences:
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


def check_num_elems(num_elems: int | None, total: int | None) -> int | None:
    """Returns the number of elements to write; None if it is not known.

    Raises
    ------
    OptionError
        If ``num_elems`` is no number of elements.
    """
    if num_elems is None:
        return total
    if isinstance(num_elems, bool) or not isinstance(num_elems, int) or num_elems < 0:
        raise OptionError("num_elems", "must be a number of elements", num_elems)
    return num_elems if total is None else min(num_elems, total)


def counted(blocks: Iterator[Block], wanted: int | None) -> Iterator[Block]:
    """Yields the blocks; warns if there were fewer elements than the user wants."""
    count = 0
    for block in blocks:
        count += block.size
        yield block
    if wanted is not None and count < wanted:
        warnings.warn(
            f"num_elems is {wanted}, but there were only {count} elements. They are "
            "written. To repeat a tf.data.Dataset, give dataset.repeat().",
            stacklevel=2,
        )


def check_endless(is_endless: bool, num_elems: int | None) -> None:
    """Raises InputError if there is no end to what would be written."""
    if is_endless and num_elems is None:
        raise InputError(
            "The data set has no end. Give `num_elems`, the number of elements to "
            "write, or leave out `repeat()`."
        )
