"""Writes the elements of one split, one block after the other."""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.dataset.element_set import element_output, finish_elements
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.progress import in_notebook, make_bar
from beam_pipeline.errors import InputError, OptionError, did_you_mean
from beam_pipeline.examples.encoding import ExampleEncoder, SequenceEncoder
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder
from beam_pipeline.write.part_shards import cut_shards, join_pieces
from beam_pipeline.write.parts import PartWriter, ShardSizes
from beam_pipeline.write.statistics import DataStatistics

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
        local_drafts(target.parts) as drafts,
    ):
        statistics = DataStatistics.of(specs.values(), has_windows=False)
        encoder = encoder_for(specs.values())
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(COMPRESSING_THREADS))
            # Statistics are added in the order of the blocks, beside this thread.
            in_order = stack.enter_context(ThreadPoolExecutor(1))
            adding: deque[Future[None]] = deque()
            writer = PartWriter(
                drafts,
                DEFAULT_SPLIT,
                0,
                sizes,
                _examples_per_part(sizes, total),
                by_bytes=not sizes.is_even and sizes.elements_per_file is None,
                pool=pool,
            )
            stack.callback(writer.abandon)
            bar = stack.enter_context(progress_bar(total, progress))
            for count, columns in blocks:
                if len(adding) > 2:
                    adding.popleft().result()
                adding.append(in_order.submit(statistics.add, columns))
                writer.write_all(encoder.encode(count, columns))
                bar.set_postfix({"file": writer.files + 1}, refresh=False)
                bar.update(count)
            parts = writer.close()
            for future in adding:
                future.result()
        target.make_room()
        shards = [
            join_pieces(shard, target.output, target.parts, may_move=True)
            for shard in cut_shards(DEFAULT_SPLIT, parts, sizes)
        ]
        finish_elements(
            target,
            {DEFAULT_SPLIT: shards},
            {DEFAULT_SPLIT: statistics},
            specs.values(),
            elements,
            suffix=sizes.suffix,
        )
        return target.output


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


def _examples_per_part(sizes: ShardSizes, total: int | None) -> Iterable[int]:
    """Returns how many examples each part holds, as far as it is known before.

    A part that is a whole shard is moved to its place and not copied.
    """
    if sizes.is_even:
        if total is None or sizes.num_shards is None:
            return ()
        bounds = sizes.bounds(total, 1)
        return (stop - start for start, stop in itertools.pairwise(bounds))
    if sizes.elements_per_file is not None:
        return itertools.repeat(sizes.elements_per_file)
    return ()


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
        if name not in specs:
            close = did_you_mean(name, specs)
            hint = f"; did you mean {close}?" if close else ""
            known = ", ".join(specs)
            raise OptionError(
                "encodings" if name in encodings else "sequences",
                f"names a feature that elements do not have; they have {known}{hint}",
                name,
            )
    for name, encoding in encodings.items():
        problem = encoding_problem(specs[name], encoding)
        if problem is not None:
            raise OptionError(f"encodings: {name}", problem, encoding)
        made[name] = replace(specs[name], encoding=encoding)
    for name in sequences:
        made[name] = _as_sequence(made[name])
        made.pop(made[name].shape_in or "", None)
        made[name] = replace(made[name], shape_in=None)
    return made


def _as_sequence(spec: FeatureSpec) -> FeatureSpec:
    shape = spec.shape
    if not shape or None in shape[1:]:
        raise OptionError(
            "sequences",
            "needs arrays with at least one axis, the steps; the sizes of the other "
            "axes must be the same in all examples",
            f"{spec.name} of shape {shape}",
        )
    return replace(spec, sequence=True, shape=(None, *shape[1:]))


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
