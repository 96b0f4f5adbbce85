"""Writes the elements of one split, one block after the other."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.dataset.element_set import (
    ElementSet,
    element_output,
    finish_elements,
    lay_out,
)
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.progress import in_notebook, make_bar
from beam_pipeline.errors import InputError, OptionError, did_you_mean
from beam_pipeline.examples.encoding import ExampleEncoder, SequenceEncoder
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder
from beam_pipeline.write.element_blocks import BlockWriter, Encoded
from beam_pipeline.write.joined_shards import join_shard
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
    with ExitStack() as stack:
        target = stack.enter_context(
            element_output(output, elements.recorded_by, overwrite)
        )
        # Files are not uploaded before they are shards.
        drafts = stack.enter_context(local_drafts(target.drafts))
        pool = stack.enter_context(ThreadPoolExecutor(COMPRESSING_THREADS))
        beside = stack.enter_context(_BesideThisThread())
        encoder = encoder_for(specs.values())
        bar = stack.enter_context(progress_bar(total, progress))
        with BlockWriter(
            specs.values(), sizes, drafts, sizes.known(total), pool, beside.call
        ) as writer:
            for count, columns in blocks:
                records = encoder.encode(count, columns)
                writer.add(Encoded(DEFAULT_SPLIT, records, columns))
                bar.set_postfix({"file": writer.files() + 1}, refresh=False)
                bar.update(count)
            beside.wait()
            result = writer.finish(0, target.receipts)
        job = ElementSet(
            target,
            tuple(specs.values()),
            sizes,
            (DEFAULT_SPLIT,),
            elements,
            settle=lambda widened, _: list(widened),
        )
        infos = [
            join_shard(shard, target.output, target.drafts, may_move=True)
            for shard in lay_out(job, [result])
        ]
        finish_elements(job, infos, [result])
        return files.absolute(os.fspath(output))


class _BesideThisThread:
    """Calls functions in the order in which they are given, in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> _BesideThisThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Has a function called; waits if several others come before it."""
        self._waiting.append(self._thread.submit(function, *args))
        self.wait(2)

    def wait(self, ahead: int = 0) -> None:
        """Waits until at most ``ahead`` calls are left; raises their errors."""
        while len(self._waiting) > ahead:
            self._waiting.popleft().result()


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
