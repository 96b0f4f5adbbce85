"""Steps that leave out windows, change copies, or depend on the clip.

::

    window 0    window 1    window 2         of a clip, with copies = 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          unchanged, first copy, second copy

A step that changes copies gets a key for each: 64 random bits. They depend on the seed,
on the clip's path and input, on the step, on the window's number in its clip and on the
copy's number. So a recipe with more copies gives the same first copies, and nothing
depends on shards, blocks or workers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.clip_reader import ClipReader, output_frames
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import ClipError, RecipeError
from beam_pipeline.examples.trial import (
    run_on_windows,
    silent_windows,
    the_sample_rate,
    trying,
)
from beam_pipeline.hashing import clip_key, hash64, text_key
from beam_pipeline.permutation import Integers
from beam_pipeline.recipe.canonical import (
    check_hash,
    hash_sounds,
    list_sounds,
    takes_sounds,
)
from beam_pipeline.recipe.sections import Augmentation
from beam_pipeline.storage import files
from beam_pipeline.transforms.augment import Sound
from beam_pipeline.transforms.base import Transform, chain_of, steps_of
from beam_pipeline.transforms.own_code import ByValue
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    SELECTION,
    TRANSFORM,
    parse_steps,
)

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
Keys = npt.NDArray[np.uint64]

COPY_BITS = 16


class CopyKeys(NamedTuple):
    """Makes the keys of the copies of a clip's windows.

    ``bits`` are random bits of the clip, and not those of its random starts.
    """

    bits: int

    @classmethod
    def of(cls, seed: int, filepath: str, source: int) -> CopyKeys:
        """Returns the keys in a clip, under the seed of a recipe."""
        return cls(int(~np.uint64(clip_key(seed, filepath, source))))

    def of_augmentation(self, at: int, numbers: Integers) -> Keys:
        """Returns the keys for the step number ``at`` of the recipe's ``augment``.

        ``numbers`` are those of :func:`copy_numbers`.
        """
        return self._of(at, numbers)

    def of_feature(self, name: str, at: int, numbers: Integers) -> Keys:
        """Returns the keys for step ``at`` of those of a feature that change copies."""
        return self._of(text_key(name, str(at)) >> 1, numbers)

    def _of(self, step: int, numbers: Integers) -> Keys:
        return hash64(int(hash64(self.bits, np.array([step]))[0]), numbers)


def copy_numbers(windows: Integers, copies: Integers) -> Integers:
    """Returns a number for each pair of a window's number and a copy's."""
    return (windows << COPY_BITS) + copies


def measuring_step(transform: Transform, name: str) -> int | None:
    """Returns the number of the step that measures clips; None if there is none.

    Raises
    ------
    RecipeError
        If there are two.
    """
    steps = enumerate(steps_of(transform))
    found = [at for at, step in steps if getattr(step, "measures_clips", False)]
    if len(found) > 1:
        raise RecipeError(
            f"{TRANSFORM.field} {name}",
            "must have at most one step that measures whole clips",
            len(found),
        )
    return found[0] if found else None


def changes_copies(step: Transform) -> bool:
    """Whether a step changes augmented copies, and nothing else."""
    return hasattr(step, "on_copies")


def check_copies(
    transforms: Mapping[str, Transform], augmentation: Augmentation
) -> None:
    """Checks that something changes copies, and that there are copies to change.

    Raises
    ------
    RecipeError
        If a step changes copies and there are none, or the other way round.
    """
    changing = [
        name
        for name, transform in transforms.items()
        if any(map(changes_copies, steps_of(transform)))
    ]
    if changing and not augmentation.copies:
        raise RecipeError(
            f"{TRANSFORM.field} {changing[0]}",
            "has a step that changes nothing but copies; give `copies`",
            0,
        )
    if augmentation.copies and not (augmentation.augment or changing):
        raise RecipeError(
            "copies and augment",
            "must be given together: the number of copies, and the steps that alter "
            "them; a feature may alter them instead, with spec_augment",
            (augmentation.copies, augmentation.augment),
        )


class Origins(NamedTuple):
    """Which windows and copies of a clip some examples are.

    Attributes
    ----------
    keys : CopyKeys
        The random keys of the clip.
    numbers : numpy.ndarray, shape (n,), int64
        See :func:`copy_numbers`.
    copies : numpy.ndarray, shape (n,), int64
        The number of each example's copy; 0 for a window as it is.
    measured : tuple of (str, bytes)
        The measure of the clip for each feature that has a step which needs it.
    """

    keys: CopyKeys
    numbers: Integers
    copies: Integers
    measured: tuple[tuple[str, bytes], ...] = ()

    def place(self, transform: Transform, name: str, rows: Integers) -> Transform:
        """Returns the transform of a feature for some rows of the examples.

        ``name`` is the feature's.
        """
        copies = np.flatnonzero(self.copies[rows])
        placed: list[Transform] = []
        at = 0
        for step in steps_of(transform):
            if getattr(step, "measures_clips", False):
                measured = dict(self.measured)[name]
                placed.append(step.of_measured(measured))  # type: ignore[attr-defined]
            else:
                placed.append(step)
            if copies.size and changes_copies(step):
                numbers = self.numbers[rows[copies]]
                keys = self.keys.of_feature(name, at, numbers)
                placed.append(_OnCopies(step, copies, keys))
                at += 1
        return chain_of(placed)


@dataclass(frozen=True, eq=False)
class _OnCopies:
    """Changes the features of some rows, with the ``on_copies`` of a step."""

    step: Any
    rows: Integers
    keys: Keys

    def __call__(self, features: Array, sample_rate_hz: int) -> Array:
        features = np.array(features)
        chosen = features[self.rows]
        chosen.flags.writeable = False
        made = np.asarray(self.step.on_copies(chosen, self.keys, sample_rate_hz))
        if made.dtype != chosen.dtype or made.shape != chosen.shape:
            raise RecipeError(
                type(self.step).__name__,
                "must return copies of the type and shape of its features, "
                f"{chosen.dtype} {chosen.shape}",
                f"{made.dtype} {made.shape}",
            )
        features[self.rows] = made
        return features


# The samples of a folder, decoded, in each process.
MOST_BYTES = 1 << 30


def load_step(step: Any, sample_rate_hz: int) -> Any:
    """Returns a step with the sounds of its folder; other steps as they are.

    Raises
    ------
    RecipeError
        See :func:`load_sounds`.
    """
    if not takes_sounds(step):
        return step
    return step.with_sounds(load_sounds(step.folder, step.sha256, sample_rate_hz))


@functools.lru_cache(maxsize=16)
def load_sounds(folder: str, sha256: str, sample_rate_hz: int) -> tuple[Sound, ...]:
    """Decodes the audio files below a folder, mixed to mono, in the order of names.

    Parameters
    ----------
    sha256 : str
        The hash of the folder that the recipe has; empty if it is not known.
    sample_rate_hz : int
        The rate that the sounds are resampled to.

    Raises
    ------
    RecipeError
        If the folder has no audio file, or other ones than the recipe says; if a file
        cannot be decoded, or is silent; or if the sounds take too much memory.
    """
    if sha256:
        check_hash(folder, sha256, hash_sounds(folder))
    sounds: list[Sound] = []
    for name, path in list_sounds(folder):
        try:
            sound = _decode(name, path, sample_rate_hz)
        except ClipError as error:
            raise RecipeError(
                "folder", f"has a file that cannot be used: {error}", folder
            ) from error
        if not sound.samples.any():
            raise RecipeError("folder", f"has a file that is silent: {name}", folder)
        sounds.append(sound)
        held = sum(each.samples.nbytes for each in sounds)
        if held > MOST_BYTES:
            raise RecipeError(
                "folder",
                f"holds sounds that take more than {MOST_BYTES} bytes of memory at "
                f"{sample_rate_hz} Hz; name a folder with fewer or shorter ones",
                folder,
            )
    return tuple(sounds)


def _decode(name: str, path: str, sample_rate_hz: int) -> Sound:
    with files.closing(files.begin_read(path)) as source:
        info = probe_audio(source, name=name)
        with ClipReader(
            source, info, name=name, sample_rate_hz=sample_rate_hz
        ) as reader:
            frames = output_frames(info.frames, info.sample_rate_hz, sample_rate_hz)
            return Sound(name, reader.read(0, frames))


@dataclass(frozen=True)
class WindowSteps:
    """The selections and augmentations of a recipe."""

    selections: tuple[Any, ...] = ()
    augmentations: tuple[Any, ...] = ()
    seed: int = 0
    copies: int = 0

    def __getstate__(self) -> dict[str, Any]:
        steps = ("selections", "augmentations")
        return vars(self) | {name: ByValue(getattr(self, name)) for name in steps}

    @classmethod
    def of(
        cls,
        keep: str,
        augmentation: Augmentation,
        seed: int,
        shape: tuple[int, ...],
        sample_rate_hz: int | None,
    ) -> WindowSteps:
        """Returns the steps of a recipe, after a trial on two silent windows.

        Parameters
        ----------
        keep : str
            The expression of the selections; empty if there are none.
        shape : tuple of int
            The shape of one window.
        sample_rate_hz : int or None
            None if clips have different rates.

        Raises
        ------
        RecipeError
            If a step does not exist, raises, returns an array of the wrong type or
            shape, or if there are steps and no single sample rate.
        """
        augment = augmentation.augment
        made = cls(
            parse_steps(keep, SELECTION) if keep else (),
            parse_steps(augment, AUGMENTATION) if augment else (),
            seed,
            augmentation.copies,
        )
        silence = silent_windows(shape)
        if made.selections:
            rate = the_sample_rate(sample_rate_hz, SELECTION, keep)
            for step in made.selections:
                with trying(step, SELECTION, silence, keep):
                    _checked_mask(step, rate, silence)
        if made.augmentations:
            rate = the_sample_rate(sample_rate_hz, AUGMENTATION, augment)
            keys = np.arange(len(silence), dtype=np.uint64)
            for step in made.augmentations:
                with trying(step, AUGMENTATION, silence, augment):
                    _checked_copy(load_step(step, rate), rate, silence, keys)
        return made

    def selected(
        self, windows: FloatArray, starts: Integers, sample_rate_hz: int, filepath: str
    ) -> npt.NDArray[np.bool_]:
        """Returns which windows pass every selection, shape (n,).

        Parameters
        ----------
        starts : numpy.ndarray, shape (n,), int64
            The first frame of each window; only errors use it.

        Raises
        ------
        TransformError
            If a selection raises, or does not return one boolean for each window.
        """
        selected = np.ones(len(windows), np.bool_)
        for step in self.selections:
            run = partial(_checked_mask, step, sample_rate_hz)
            name = f"{SELECTION.field}: {type(step).__name__}"
            selected &= run_on_windows(run, (windows,), name, starts, filepath)
        return selected

    def augmented(
        self,
        windows: FloatArray,
        numbers: Integers,
        starts: Integers,
        sample_rate_hz: int,
        filepath: str,
        source: int,
    ) -> FloatArray:
        """Returns windows after every augmentation, in the order of the recipe.

        Parameters
        ----------
        numbers : numpy.ndarray, shape (n,), int64
            The number of each window's example in the clip.
        starts : numpy.ndarray, shape (n,), int64
            The first frame of each window; only errors use it.

        Raises
        ------
        TransformError
            If an augmentation raises, or returns another type or shape.
        """
        of_clip = CopyKeys.of(self.seed, filepath, source)
        numbers = copy_numbers(*np.divmod(numbers, self.copies + 1))
        for at, step in enumerate(self.augmentations):
            keys = of_clip.of_augmentation(at, numbers)
            loaded = load_step(step, sample_rate_hz)
            run = partial(_checked_copy, loaded, sample_rate_hz)
            name = f"{AUGMENTATION.field}: {type(step).__name__}"
            windows = run_on_windows(run, (windows, keys), name, starts, filepath)
        return windows

    def origins(
        self,
        numbers: Integers,
        copies: Integers,
        filepath: str,
        source: int,
        measured: tuple[tuple[str, bytes], ...],
    ) -> Origins:
        """Returns what the steps of features need of some examples of a clip.

        ``numbers`` are those of the examples in the clip, and ``copies`` those of their
        copies; ``measured`` is that of the clip.
        """
        keys = CopyKeys.of(self.seed, filepath, source)
        windows = (numbers - copies) // (self.copies + 1)
        return Origins(keys, copy_numbers(windows, copies), copies, measured)


def _checked_mask(
    step: Any, sample_rate_hz: int, windows: FloatArray
) -> npt.NDArray[np.bool_]:
    mask = np.asarray(step.keep(windows, sample_rate_hz))
    if mask.dtype != np.bool_ or mask.shape != windows.shape[:1]:
        raise RecipeError(
            type(step).__name__,
            f"must return {len(windows)} booleans for windows of shape {windows.shape}",
            f"{mask.dtype} {mask.shape}",
        )
    return mask


def _checked_copy(
    step: Any, sample_rate_hz: int, windows: FloatArray, keys: npt.NDArray[np.uint64]
) -> FloatArray:
    made = np.asarray(step.augment(windows, keys, sample_rate_hz))
    if made.dtype != np.float32 or made.shape != windows.shape:
        raise RecipeError(
            type(step).__name__,
            "must return float32 values of the same shape as its windows, "
            f"{windows.shape}",
            f"{made.dtype} {made.shape}",
        )
    made = made.view()
    made.flags.writeable = False
    return made
