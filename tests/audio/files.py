"""Audio files in memory, and what the package reads of them."""

import io

import av
import numpy as np
import soundfile

from beam_pipeline.audio.clip_reader import ClipReader, probe_audio


def noise(frames, channels=1, seed=0, level=1.0):
    rng = np.random.default_rng(seed)
    return (level * rng.uniform(-1, 1, (frames, channels))).astype(np.float32)


def chirp(frames=20_000, channels=1, seed=0):
    """A chirp of 16 kHz in noise: no stretch of it occurs twice."""
    time = np.arange(frames) / 16000
    sound = 0.4 * np.sin(2 * np.pi * (200 + 900 * time) * time)[:, None]
    return sound + np.random.default_rng(seed).normal(0, 0.05, (frames, channels))


def encode(samples, rate=8000, **options):
    """The bytes of a file, by default WAV."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, **{"format": "WAV", **options})
    return file.getvalue()


def probe(data, **options):
    return probe_audio(io.BytesIO(data), name="clip", **options)


def read(data, info=None, block=1 << 20, **options):
    """All samples, as a probe finds them or as ``info`` says, in blocks."""
    info = info or probe(data, **options)
    with ClipReader(io.BytesIO(data), info, name="clip", channels="keep") as reader:
        starts = range(0, info.frames, block)
        parts = [reader.read(k, min(k + block, info.frames)) for k in starts]
    return np.concatenate(parts, axis=1).T


def decoded_by_ffmpeg(data):
    """All samples, shape (frames, channels); its own libraries make them floats."""
    with av.open(io.BytesIO(data)) as container:
        resampler = av.AudioResampler("fltp")
        frames = [*container.decode(audio=0), None]  # None empties the resampler
        parts = [made.to_ndarray() for f in frames for made in resampler.resample(f)]
    return np.concatenate(parts, axis=1).T
