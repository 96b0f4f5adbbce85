"""The most probable path of a pitch that glides, starts and stops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.intp]

VOICED, UNVOICED = 0, 1


@dataclass(frozen=True)
class PitchPaths:
    """Viterbi decoding of a pitch and its voicing, for several windows at once.

    The states are (voicing, pitch). From one time frame to the next the pitch moves by
    ``k`` steps with a probability proportional to ``1 - |k| / (glide + 1)``, within
    the range of pitches, and the voicing changes with probability ``switch``. At the
    start, all states are equally probable. Among equally probable paths, the result is
    the one whose last states are voiced, then low.

    Transitions are local, so a step takes about ``8 * glide`` operations per pitch; the
    full matrix would take ``8 * pitches``. ``forward`` returns the scores of a stretch
    of time, and ``backward`` finds the path in them. A long time is cut into stretches;
    the last scores of a stretch are enough to continue after it.

    Attributes
    ----------
    pitches : int
        Number of pitches.
    glide : int
        The largest move of the pitch, in steps.
    switch : float
        Probability that the voicing changes, between 0 and 1.

    References
    ----------
    A. Viterbi, Error bounds for convolutional codes and an asymptotically optimum
    decoding algorithm, IEEE Transactions on Information Theory 13(2), 1967.

    Examples
    --------
    >>> paths = PitchPaths(pitches=3, glide=1, switch=0.01)
    >>> voiced = np.log(np.float32([[[0.8], [0.1], [0.1]], [[0.3], [0.2], [0.4]]]))
    >>> history = paths.forward(voiced, np.log(np.float32([[0.1], [0.1]])))
    >>> paths.backward(history).tolist()
    [[[0, 0]], [[0, 0]]]
    """

    pitches: int
    glide: int
    switch: float

    @property
    def bytes_a_step(self) -> int:
        """The size of the scores of one window at one time frame."""
        return 2 * (self.pitches + 2 * self.glide) * np.dtype(np.float32).itemsize

    def forward(
        self,
        voiced: FloatArray,
        unvoiced: FloatArray,
        before: FloatArray | None = None,
    ) -> FloatArray:
        """The scores of the best path to each state.

        Parameters
        ----------
        voiced : numpy.ndarray, shape (time_frames, pitches, windows)
            Logarithms of the observation probabilities of voiced states.
        unvoiced : numpy.ndarray, shape (time_frames, windows)
            The same for unvoiced states of any pitch.
        before : numpy.ndarray, shape (pitches + 2 * glide, 2, windows), optional
            The scores at the last time frame of the stretch before.

        Returns
        -------
        numpy.ndarray, shape (time_frames, pitches + 2 * glide, 2, windows), float32
            The logarithm of the sum of weights of a state's moves is subtracted from
            its score, so that the moves' weights do not depend on the state. The
            pitches are in the middle; the rest is minus infinity, which no path uses.
        """
        steps, pitches, windows = voiced.shape
        inside = slice(self.glide, self.glide + pitches)
        history = np.full(
            (steps, pitches + 2 * self.glide, 2, windows), -np.inf, np.float32
        )
        best = np.zeros((pitches, 2, windows), np.float32)
        for step, scores in enumerate(history):
            if before is not None:
                self._move(before, best)
            best[:, VOICED] += voiced[step]
            best[:, UNVOICED] += unvoiced[step]
            # Scores stay near 0, so float32 resolves them for paths of any length.
            best -= best.max(axis=(0, 1))
            np.subtract(best, self._sums, out=scores[inside])
            before = scores
        return history

    def backward(self, history: FloatArray, after: IntArray | None = None) -> IntArray:
        """The states of the best path.

        Parameters
        ----------
        history : numpy.ndarray
            The result of ``forward``.
        after : numpy.ndarray, shape (2, windows), optional
            The states at the first time frame of the next stretch.

        Returns
        -------
        numpy.ndarray, shape (2, windows, time_frames)
            The voicing, 0 for voiced and 1 for unvoiced, and the pitch.
        """
        steps, _, _, windows = history.shape
        path = np.empty((2, windows, steps), np.intp)
        for step in reversed(range(steps)):
            scores = history[step]
            if after is None:
                ends = scores[self.glide : self.glide + self.pitches] + self._sums
                after = _argmax(ends)
            else:
                after = self._origin(scores, after)
            path[..., step] = after
        return path

    def _move(self, before: FloatArray, best: FloatArray) -> None:
        """Writes the best scores that states can get from those one step before."""
        stay, change = self._voicing
        # Voicing comes first: it does not depend on the move of the pitch.
        origins = before + stay
        np.maximum(origins, before[:, ::-1] + change, out=origins)
        middle, pitches = self.glide, self.pitches
        np.add(origins[middle : middle + pitches], self._weights[middle], out=best)
        moved = np.empty_like(best)
        for k in range(1, self.glide + 1):
            up, down = middle - k, middle + k
            np.maximum(
                origins[up : up + pitches], origins[down : down + pitches], out=moved
            )
            moved += self._weights[down]
            np.maximum(best, moved, out=best)

    def _origin(self, scores: FloatArray, state: IntArray) -> IntArray:
        """The states from which the best paths came to each window's state."""
        voicing, pitch = state
        moves = np.arange(2 * self.glide + 1)[:, np.newaxis]
        near = scores[pitch + moves, :, np.arange(len(pitch))]
        stay, change = self._voicing
        turns = np.where(np.arange(2) == voicing[:, np.newaxis], stay, change)
        near += turns
        near += self._weights[:, np.newaxis, np.newaxis]
        origin = _argmax(near.swapaxes(1, 2))
        origin[1] += pitch - self.glide
        return origin

    @cached_property
    def _voicing(self) -> FloatArray:
        return np.log([1 - self.switch, self.switch]).astype(np.float32)

    @cached_property
    def _triangle(self) -> npt.NDArray[np.float64]:
        return 1 - np.abs(np.arange(-self.glide, self.glide + 1)) / (self.glide + 1)

    @cached_property
    def _weights(self) -> FloatArray:
        return np.log(self._triangle).astype(np.float32)

    @cached_property
    def _sums(self) -> FloatArray:
        """Logarithms of the sums of weights of each pitch's moves within the range."""
        sums = np.convolve(np.ones(self.pitches), self._triangle)
        inside = sums[self.glide : self.glide + self.pitches]
        return np.log(inside).astype(np.float32)[:, np.newaxis, np.newaxis]


def _argmax(scores: FloatArray) -> IntArray:
    """(Voicing, index in m) of each window's first maximum in (m, 2, windows)."""
    flat = scores.transpose(2, 1, 0).reshape(scores.shape[2], -1).argmax(axis=1)
    return np.stack(np.divmod(flat, len(scores)))
