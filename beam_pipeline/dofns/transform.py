"""Windows to features: :class:`Transform`."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.dofns.clips import REJECTS, Step
from beam_pipeline.errors import (
    InputError,
    OptionError,
    TransformError,
    is_of_machine,
)
from beam_pipeline.parameters import check_text, check_whole
from beam_pipeline.transforms import base
from beam_pipeline.transforms.steps import parse_transform
from beam_pipeline.write.blocks import BLOCK_BYTES

# The most elements in a block of short windows: their dicts take memory, too.
_MOST_IN_BLOCK = 256


class _Pending(NamedTuple):
    """An element that waits for the others of its block."""

    element: Any
    array: npt.NDArray[Any]
    timestamp: Any
    window: Any
    pane: Any

    def with_value(self, value: Any) -> WindowedValue:
        """Wraps a value: Beam would give it the time of a later element."""
        return WindowedValue(value, self.timestamp, (self.window,), self.pane)


class Transform(Step):
    """Applies a transform to windows: dict -> dict, or array -> array.

    Windows of the same shape, type and rate are transformed together, in blocks of one
    bundle, which takes about two thirds of the time. The result is that of the
    window alone, bit for bit, as every transform must treat windows one by one. The
    order of the elements, their timestamps and their windows (those of Beam) stay.

    ::

        beam.ParDo(Transform("log_mel()|delta()"))

    Parameters
    ----------
    transform : str or callable
        An expression, or a transform: an object such as ``LogMel()``, or a function of
        windows ``(n, frames)``; see :mod:`beam_pipeline.transforms.base`.
    key : str
        The key of the window in a dict.
    into : str, optional
        The key of the result. Without it, the result replaces the window, and ``fs``
        becomes the rate after the transform, if it resamples.
    sample_rate : int, optional
        In Hz, for arrays, and for dicts that have no ``fs``.
    batch : int, optional
        The most windows in a block. Default: as many as fit into 1 MiB, at most 256.
    on_error : str
        ``raise``: raises TransformError. ``reject``: as in :class:`Probe`.

    Raises
    ------
    OptionError
        If the expression cannot be read, or an option is out of its range; on a worker,
        if the transform needs a sample rate and there is none.
    InputError
        If a dict has no such key.
    TransformError
        If the transform raises, or does not return a row for each window. Names the
        file, the start of the window and the cause.
    """

    def __init__(
        self,
        transform: str | base.Transform,
        *,
        key: str = "signal",
        into: str | None = None,
        sample_rate: int | None = None,
        batch: int | None = None,
        on_error: str = "raise",
    ):
        super().__init__(on_error)
        if isinstance(transform, str):
            self._name = transform
            self._transform = parse_transform(transform)
        elif callable(transform) and not isinstance(transform, type):
            self._name = getattr(transform, "__name__", type(transform).__name__)
            self._transform = transform
        else:
            raise OptionError("transform", "must be text or a callable", transform)
        check_text("key", key)
        if into is not None:
            check_text("into", into)
        for name, value in (("sample_rate", sample_rate), ("batch", batch)):
            if value is not None:
                check_whole(name, value)
        self._key = key
        self._into = into
        self._sample_rate = sample_rate
        self._batch = batch
        self._needs_rate = base.needs_sample_rate(self._transform)

    def start_bundle(self) -> None:
        self._block: list[_Pending] = []
        self._like: tuple[Any, ...] = ()

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any]:
        array, rate = self._window_of(element)
        like = array.dtype, array.shape, rate
        if like != self._like:
            yield from self._flush()
            self._like = like
        self._block.append(_Pending(element, array, timestamp, window, pane))
        most = self._batch or min(_MOST_IN_BLOCK, BLOCK_BYTES // max(1, array.nbytes))
        if len(self._block) >= most:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flush()

    def _window_of(self, element: Any) -> tuple[npt.NDArray[Any], int]:
        rate = self._sample_rate
        if isinstance(element, Mapping):
            if self._key not in element:
                raise InputError(
                    f"An element has no key {self._key}; its keys are "
                    f"{', '.join(map(str, element)) or 'none'}. Check `key`."
                )
            rate = element.get("fs", rate)
            array = np.asarray(element[self._key])
        elif self._into is not None:
            raise InputError(
                f"An element is no dict, so there is no key {self._into} to add. Give "
                f"dicts, or no `into`; got {reprlib.repr(element)}."
            )
        else:
            array = np.asarray(element)
        if rate is None and self._needs_rate:
            raise OptionError(
                "sample_rate",
                f"is needed by {self._name}, because an element has no key fs; give "
                "the rate in Hz",
                None,
            )
        return array, int(rate or 0)

    def _flush(self) -> Iterator[Any]:
        block, self._block = self._block, []
        if not block:
            return
        rate = self._like[-1]
        for pending, result in zip(block, self._results(block, rate), strict=True):
            if isinstance(result, TransformError):
                reject = self.reject("transform", result, result.reason)
                yield TaggedOutput(REJECTS, pending.with_value(reject))
            else:
                yield pending.with_value(self._merged(pending.element, result, rate))

    def _results(self, block: Sequence[_Pending], rate: int) -> list[Any]:
        """A row or an error for each element; if all fail together, one by one."""
        try:
            return list(self._apply([pending.array for pending in block], rate))
        except (Exception, SystemExit) as error:  # a transform may raise anything
            if is_of_machine(error):
                raise
            if len(block) == 1:
                return [self._error(block[0], error)]
            return [result for one in block for result in self._results([one], rate)]

    def _apply(
        self, windows: Sequence[npt.NDArray[Any]], rate: int
    ) -> npt.NDArray[Any]:
        block = np.stack(windows)
        block.flags.writeable = False
        rows = np.asarray(base.apply_transform(self._transform, block, rate))
        if rows.shape[:1] != (len(block),):
            raise ValueError(
                f"returned shape {rows.shape} for windows of shape {block.shape}, but "
                "it must return one row for each window"
            )
        return rows

    def _error(self, pending: _Pending, error: BaseException) -> TransformError:
        element = pending.element
        path, at = f"an array of shape {pending.array.shape}", "it"
        if isinstance(element, Mapping):
            path = str(element.get("filepath", "a window without filepath"))
            at = f"the window at frame {element.get('win_start_idx', '?')}"
        reason = f"{self._name} fails on {at}: {type(error).__name__}: {error}"
        made = TransformError(path, reason)
        made.__cause__ = error
        return made

    def _merged(self, element: Any, result: Any, rate: int) -> Any:
        if not isinstance(element, Mapping):
            return result
        if self._into is not None:
            return {**element, self._into: result}
        changed = {self._key: result}
        if "fs" in element:
            changed["fs"] = base.rate_after(self._transform, rate)
        return {**element, **changed}
