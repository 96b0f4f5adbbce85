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
    the range of pitches, and the voicing changes with probability ``switch``. All
    states are as probable at the start. Of paths as probable as each other it is the
    one whose last states are voiced, then low.

    Transitions are local, so that a step takes about ``8 * glide`` operations a pitch;
    with the full matrix it would take ``8 * pitches``. ``forward`` keeps the scores of
    a stretch of time, and ``backward`` finds the path in them. A long time is cut into
    stretches: only the last scores of each are needed to come back to it later.

    Attributes
    ----------
    pitches : int
    glide : int
        The most steps that the pitch moves by.
    switch : float
        Between 0 and 1.

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
        """How large the scores are of one window at one time."""
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
            Logarithms of the probabilities of what was observed, in voiced states.
        unvoiced : numpy.ndarray, shape (time_frames, windows)
            The same in unvoiced states, whatever their pitch.
        before : numpy.ndarray, shape (pitches + 2 * glide, 2, windows), optional
            The scores at the last time of the stretch before.

        Returns
        -------
        numpy.ndarray, shape (time_frames, pitches + 2 * glide, 2, windows), float32
            Each is less the logarithm of the sum of its moves' weights, so that these
            need not know where a path came from. The pitches are in the middle;
            beside them is what no path can come from.
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
            # However long the path, float32 resolves what differs between its ends.
            best -= best.max(axis=(0, 1))
            np.subtract(best, self._sums, out=scores[inside])
            before = scores
        return history

    def backward(self, history: FloatArray, after: IntArray | None = None) -> IntArray:
        """The states of the best path.

        Parameters
        ----------
        history : numpy.ndarray
            What ``forward`` gave.
        after : numpy.ndarray, shape (2, windows), optional
            The states at the first time of the stretch after.

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
        """The best that the states can get from those of the step before."""
        stay, change = self._voicing
        # The voicing first: it does not depend on how the pitch moves.
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
        """Of the weights of the moves from each pitch that stay in the range."""
        sums = np.convolve(np.ones(self.pitches), self._triangle)
        inside = sums[self.glide : self.glide + self.pitches]
        return np.log(inside).astype(np.float32)[:, np.newaxis, np.newaxis]


def _argmax(scores: FloatArray) -> IntArray:
    """For each window of (m, 2, windows), the last indices of the first maximum."""
    flat = scores.transpose(2, 1, 0).reshape(scores.shape[2], -1).argmax(axis=1)
    return np.stack(np.divmod(flat, len(scores)))
