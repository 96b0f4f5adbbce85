"""Writes a small labelled set of sounds: WAV files in one folder for each class.

    python launch/synthesise.py FOLDER [--clips-per-class 8] [--seconds 3]

The sounds are synthetic, but vary as recordings do: clips differ in loudness, pitch,
tempo and duration, and all have some background noise. The same arguments give the same
files. With more clips per class, the earlier files stay the same.
"""

import argparse
from pathlib import Path

import numpy as np
import soundfile


def whistle(frames, rate, rng):
    """A tone that glides up and down by up to an octave around 0.8 to 2 kHz."""
    time = np.arange(frames) / rate
    centre = min(rng.uniform(800, 2000), rate / 8)
    octaves = rng.uniform(0.3, 1.0)
    glide = octaves * np.sin(2 * np.pi * (rng.uniform(0.2, 1.0) * time + rng.random()))
    phase = 2 * np.pi * np.cumsum(centre * 2**glide) / rate
    breath = 1 + 0.3 * np.sin(2 * np.pi * rng.uniform(3, 7) * time)
    return breath * np.sin(phase)


def hum(frames, rate, rng):
    """Harmonics of a fundamental of 80 to 160 Hz, and noise, as a motor has."""
    time = np.arange(frames) / rate
    fundamental = rng.uniform(80, 160)
    drift = 0.02 * np.sin(2 * np.pi * (rng.uniform(0.05, 0.3) * time + rng.random()))
    phase = 2 * np.pi * fundamental * np.cumsum(1 + drift) / rate
    sound = coloured_noise(frames, rate, rng, low=50, high=1000) * 0.2
    for harmonic in range(1, 13):
        if 1.1 * harmonic * fundamental < rate / 2:
            level = rng.uniform(0.4, 1.0) / harmonic
            sound += level * np.sin(harmonic * phase + rng.uniform(0, 2 * np.pi))
    return sound


def clicks(frames, rate, rng):
    """Ringing clicks, 4 to 12 a second at uneven intervals, that decay in 2 to 8 ms."""
    per_second = rng.uniform(4, 12)
    pitch = min(rng.uniform(1000, 3500), 0.4 * rate)
    decay = rng.uniform(0.002, 0.008)
    time = np.arange(int(8 * decay * rate) + 1) / rate
    click = np.exp(-time / decay) * np.sin(2 * np.pi * pitch * time)
    sound = np.zeros(frames + len(click))
    gaps = rng.uniform(0.3, 1.7, int(3 * per_second * frames / rate) + 2)
    for start in (np.cumsum(gaps) / per_second * rate).astype(int):
        if start >= frames:
            break
        sound[start : start + len(click)] += rng.uniform(0.5, 1.0) * click
    return sound[:frames]


def rain(frames, rate, rng):
    """Noise between about 0.4 and 6 kHz, whose strength varies slowly."""
    time = np.arange(frames) / rate
    low, high = rng.uniform(300, 700), rng.uniform(4000, 7000)
    gusts = 1 + 0.4 * np.sin(2 * np.pi * (rng.uniform(0.1, 0.5) * time + rng.random()))
    return gusts * coloured_noise(frames, rate, rng, low=low, high=high)


CLASSES = {"clicks": clicks, "hum": hum, "rain": rain, "whistle": whistle}


def coloured_noise(frames, rate, rng, *, low, high):
    """Returns noise of unit standard deviation.

    Its spectrum is flat between `low` and `high`, in Hz, and falls by 12 dB an octave
    outside.
    """
    # Filters in the spectrum, at a length that is fast for the FFT.
    length = 1 << max(frames - 1, 1).bit_length()
    spectrum = np.fft.rfft(rng.standard_normal(length))
    hertz = np.maximum(np.fft.rfftfreq(length, 1 / rate), 1e-3)
    spectrum /= np.hypot(1, (low / hertz) ** 2) * np.hypot(1, (hertz / high) ** 2)
    noise = np.fft.irfft(spectrum, length)[:frames]
    return noise / max(noise.std(), 1e-12)


def synthesise(label, frames, rate, rng):
    """Returns one sound of a class.

    Parameters
    ----------
    label : str
        One of `CLASSES`.
    frames : int
        Length of the sound, at least 1.
    rate : int
        Frames per second.
    rng : numpy.random.Generator
        Source of everything that varies within the class.

    Returns
    -------
    numpy.ndarray, shape (frames,), float32
        The sound over faint background noise; its peak is between -36 and -3 dB of
        full scale.
    """
    sound = CLASSES[label](frames, rate, rng)
    sound = sound / max(np.abs(sound).max(), 1e-12)
    background_db = rng.uniform(-60, -45)
    sound += 10 ** (background_db / 20) * rng.standard_normal(frames)
    peak_db = rng.uniform(-36, -3)
    return (sound * (10 ** (peak_db / 20) / np.abs(sound).max())).astype(np.float32)


def write_clips(folder, *, clips_per_class=8, seconds=3.0, rate=16000, seed=0):
    """Writes `FOLDER/CLASS/CLASS_000.wav` and so on, and returns their paths.

    Each clip lasts between 0.7 and 1.3 times `seconds`.
    """
    paths = []
    for number, label in enumerate(sorted(CLASSES)):
        Path(folder, label).mkdir(parents=True, exist_ok=True)
        for clip in range(clips_per_class):
            rng = np.random.default_rng([seed, number, clip])
            frames = max(1, round(rng.uniform(0.7, 1.3) * seconds * rate))
            path = Path(folder, label, f"{label}_{clip:03d}.wav")
            sound = synthesise(label, frames, rate, rng)
            soundfile.write(path, sound, rate, subtype="PCM_16")
            paths.append(path)
    return paths


def write_scenes(folder, *, scenes=40, seconds=10.0, rate=16000, seed=0):
    """Writes `FOLDER/scene_000.wav` and so on, each with its events in a CSV file.

    A scene is noise with 3 to 6 events of 0.3 to 2 s, of random classes, which may
    overlap. The power of an event is that of the noise, and -5 to 20 dB more.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    for scene in range(scenes):
        rng = np.random.default_rng([seed, len(CLASSES), scene])
        sound = coloured_noise(round(seconds * rate), rate, rng, low=50, high=2000)
        lines = ["start,end,label"]
        for _ in range(rng.integers(3, 7)):
            label = rng.choice(sorted(CLASSES))
            frames = round(rng.uniform(0.3, 2.0) * rate)
            start = rng.integers(0, len(sound) - frames)
            event = CLASSES[label](frames, rate, rng)
            level_db = rng.uniform(-5, 20)
            event *= 10 ** (level_db / 20) / max(event.std(), 1e-12)
            sound[start : start + frames] += event
            lines.append(f"{start / rate:.4f},{(start + frames) / rate:.4f},{label}")
        sound *= 0.5 / np.abs(sound).max()
        path = Path(folder, f"scene_{scene:03d}.wav")
        soundfile.write(path, sound, rate, subtype="PCM_16")
        path.with_suffix(".csv").write_text("\n".join(lines) + "\n")


def main(argv=None):
    """Parses the arguments, writes the clips and prints their folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--clips-per-class", type=int, default=8, metavar="N")
    parser.add_argument("--seconds", type=float, default=3.0, help="mean duration")
    parser.add_argument("--rate", type=int, default=16000, help="frames per second")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    for name in ("clips_per_class", "seconds", "rate"):
        if getattr(options, name) <= 0:
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} must be positive, got {getattr(options, name)}")
    if options.seed < 0:
        parser.error(f"--seed must not be negative, got {options.seed}")
    paths = write_clips(
        options.folder,
        clips_per_class=options.clips_per_class,
        seconds=options.seconds,
        rate=options.rate,
        seed=options.seed,
    )
    print(f"{len(paths)} clips of {len(CLASSES)} classes in {options.folder}")


if __name__ == "__main__":
    main()
