"""Says whether the samples of a mutated file are right."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from tests.fuzz.originals import CHECKED, LONGER, UNSIZED

_BLOCK = 512
# libmpg123 leaves out these frames if a header counts the frames and has no delay.
_MP3_DELAY = 529


def judge(case, outcome):
    """Returns a verdict about a complete file, and what was compared.

    - right: the samples of the undamaged file; or those of ffmpeg, to the tolerance of
      the kind; or the beginning of ffmpeg's, where it ignores declared sizes and reads
      what follows.
    - inside: right in length, but with other samples, in a format without checksums.
    - unknown: another length or layout, in a format that declares no length or with a
      damaged header, and ffmpeg does not read the file.
    - differs: anything else, in particular more frames than the file has, and a stretch
      that occurs twice.
    """
    samples, original = outcome.samples, case.original
    assert samples is not None
    if samples.shape == original.samples.shape and np.allclose(
        samples, original.samples, rtol=0, atol=original.tolerance
    ):
        return "right", "as undamaged"
    if original.tolerance and repeats(samples):
        return "differs", "a stretch occurs twice"
    theirs = ffmpeg(case.data, outcome.channels)
    length = f"{len(samples)} frames, undamaged {len(original.samples)}"
    if theirs is not None:
        length += f", ffmpeg {len(theirs)}"
        common = min(len(samples), len(theirs))
        difference = np.abs(samples[:common] - theirs[:common]).max(initial=0)
        length += f", {difference:.2g} apart"
        same = difference <= original.tolerance
        if same and len(samples) == len(theirs):
            return "right", "as ffmpeg"
        if same and len(samples) < len(theirs) and original.kind.startswith(LONGER):
            return "right", "as ffmpeg, to the declared end"
        late = theirs[_MP3_DELAY:]
        is_late = original.kind.startswith("MP3") and samples.shape == late.shape
        if is_late and np.abs(samples - late).max() <= original.tolerance:
            return "right", "as ffmpeg, without the decoder's delay"
    lengths = {len(original.samples)} | ({len(theirs)} if theirs is not None else set())
    checked = original.kind.startswith(CHECKED)
    if len(samples) in lengths and not checked:
        return "inside", length
    changed = outcome.channels != original.samples.shape[1]
    changed = changed or original.kind.startswith(UNSIZED)
    if theirs is None and (changed or len(samples) < len(original.samples)):
        return "unknown", length
    return "differs", length


def repeats(samples):
    """Whether a block that is not constant occurs twice."""
    seen = set()
    for start in range(0, len(samples) - _BLOCK, _BLOCK):
        block = samples[start : start + _BLOCK]
        if (block == block[0]).all():
            continue
        # A block of a repeat begins anywhere, so each is found by its largest sample.
        peak = int(np.argmax(np.abs(block[:, 0])))
        around = samples[max(0, start + peak - 64) : start + peak + 64].tobytes()
        if around in seen:
            return True
        seen.add(around)
    return False


def ffmpeg(data, channels):
    """Returns what ffmpeg decodes; None if it is not installed or decodes nothing."""
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip"
        path.write_bytes(data)
        command = [program, "-v", "quiet", "-nostdin", "-i", str(path)]
        command += ["-map", "0:a:0", "-f", "f32le", "-c:a", "pcm_f32le", "-"]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    samples = np.frombuffer(done.stdout[: len(done.stdout) // 4 * 4], "<f4")
    if not len(samples) or len(samples) % channels:
        return None
    return samples.reshape(-1, channels)
