"""Compares our reader with ffmpeg and sox, format by format.

``python -m tests.benchmarks.formats`` makes eight undamaged files of each format with
ffmpeg, sox, flac and lame, and prints a row for each format. It ends with status 1 if
a file is wrong. A row counts files that are::

    equal       our frames are as many as ffmpeg's, or as sox's, and the samples differ
                by no more than the precision of the format
    rejected    with the reason, which the table prints
    wrong       anything else: other samples, or fewer frames

Some decoders of a format do not agree on the frames that an encoder has added. Then
our samples must be a stretch of theirs, and hold the whole sound that was encoded; the
table counts them as *other ends*.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from tests.fuzz.cases import record


class Format(NamedTuple):
    """How files of a format are made, and how exact its decoders are.

    ``command`` has the words of a program, where ``IN`` and ``OUT`` stand for files.
    ``rates`` and ``channels`` are what the format holds. Two decoders may differ by
    ``precision`` of full scale.
    """

    name: str
    suffix: str
    command: str
    precision: float
    rates: tuple[int, ...] = (8000, 16000, 22050, 44100, 48000)
    channels: tuple[int, ...] = (1, 2)


_FFMPEG = "ffmpeg -v error -i IN"
_SOX = "sox -D IN"
_LOSSY = 2e-3
# G.711, ADPCM, GSM: decoders round to 16 bits differently.
_STEP = 2**-14
_HIGH = (44100, 48000)
FORMATS = (
    Format("WAV, 8 bit", "wav", f"{_FFMPEG} -c:a pcm_u8 OUT", 0),
    Format("WAV, 16 bit", "wav", f"{_FFMPEG} -c:a pcm_s16le OUT", 0, channels=(1, 6)),
    Format("WAV, 24 bit", "wav", f"{_FFMPEG} -c:a pcm_s24le OUT", 0),
    Format("WAV, 32 bit", "wav", f"{_FFMPEG} -c:a pcm_s32le OUT", 2**-24),
    Format("WAV, float", "wav", f"{_FFMPEG} -c:a pcm_f32le OUT", 0),
    Format("WAV, double", "wav", f"{_FFMPEG} -c:a pcm_f64le OUT", 2**-24),
    Format("WAV, A-law", "wav", f"{_FFMPEG} -c:a pcm_alaw OUT", _STEP),
    Format("WAV, mu-law", "wav", f"{_FFMPEG} -c:a pcm_mulaw OUT", _STEP),
    Format("WAV, IMA ADPCM", "wav", f"{_FFMPEG} -c:a adpcm_ima_wav OUT", _LOSSY),
    Format("WAV, MS ADPCM", "wav", f"{_FFMPEG} -c:a adpcm_ms OUT", _LOSSY),
    Format("WAV, GSM", "wav", f"{_SOX} -e gsm-full-rate OUT", _LOSSY, (8000,), (1,)),
    Format("RF64", "wav", f"{_FFMPEG} -rf64 always OUT", 0),
    Format("W64", "w64", f"{_FFMPEG} OUT", 0),
    Format("AIFF", "aiff", f"{_FFMPEG} OUT", 0),
    Format("AIFC, float", "aifc", f"{_SOX} -e float -b 32 OUT", 0),
    Format("AU", "au", f"{_FFMPEG} OUT", 0),
    Format("CAF", "caf", f"{_FFMPEG} -c:a pcm_s16be OUT", 0),
    Format("NIST SPHERE", "sph", f"{_SOX} OUT", 0),
    Format("VOC of sox", "voc", f"{_SOX} OUT", 0),
    Format("VOC of ffmpeg", "voc", f"{_FFMPEG} OUT", 0),
    Format("PAF, IRCAM", "sf", f"{_SOX} OUT", 0),
    Format("8SVX", "8svx", f"{_SOX} OUT", 0, channels=(1,)),
    Format("AVR", "avr", f"{_SOX} OUT", 0),
    Format("FLAC", "flac", "flac --silent -f --channel-map=none -o OUT IN", 0),
    Format("FLAC in Ogg", "oga", "flac --ogg --silent -f -o OUT IN", 0),
    Format("MP3, constant", "mp3", "lame --silent -b 128 IN OUT", _LOSSY),
    Format("MP3, variable", "mp3", "lame --silent -V 4 IN OUT", _LOSSY),
    Format("MP3, no header", "mp3", "lame --silent -t IN OUT", _LOSSY),
    Format("MP3 of ffmpeg", "mp3", f"{_FFMPEG} OUT", _LOSSY),
    Format("MP2", "mp2", f"{_FFMPEG} OUT", _LOSSY, (16000, 22050, *_HIGH)),
    Format("Vorbis", "ogg", f"{_FFMPEG} -c:a libvorbis OUT", _LOSSY),
    # At 8 and 16 kHz, libsndfile has the codec decode at that rate, and ffmpeg changes
    # the rate afterwards.
    Format("Opus", "opus", f"{_FFMPEG} -c:a libopus OUT", 0.05, (8000, 16000, 48000)),
    Format("Speex", "spx", f"{_FFMPEG} -c:a libspeex OUT", _LOSSY, (8000, 16000)),
    Format("AAC", "aac", f"{_FFMPEG} OUT", _LOSSY),
    Format("AAC in MP4", "m4a", f"{_FFMPEG} OUT", _LOSSY),
    Format("ALAC in MP4", "m4a", f"{_FFMPEG} -c:a alac OUT", 0),
    Format("ALAC in CAF", "caf", f"{_FFMPEG} -c:a alac OUT", 0),
    Format("Opus in WebM", "webm", f"{_FFMPEG} OUT", _LOSSY, (8000, 16000, 48000)),
    Format("FLAC in Matroska", "mka", f"{_FFMPEG} -c:a flac OUT", 0),
    Format("WMA", "wma", f"{_FFMPEG} -c:a wmav2 OUT", _LOSSY, (16000, 22050, *_HIGH)),
    Format("WavPack", "wv", f"{_FFMPEG} OUT", 0),
    Format("TTA", "tta", f"{_FFMPEG} OUT", 0),
    Format("AC-3", "ac3", f"{_FFMPEG} OUT", _LOSSY, _HIGH),
    Format("AMR-NB", "amr-nb", f"{_SOX} OUT", _LOSSY, (8000,), (1,)),
)
# Of each format: rates and channels take turns, and so do these lengths.
SECONDS = (2.0, 0.4, 3.217, 1.0, 0.13, 2.5, 0.77, 1.9)


def source(rate, channels, seconds, seed):
    """Returns tones that slide, with some noise, in whole samples of 16 bits."""
    rng = np.random.default_rng(seed)
    times = np.arange(round(rate * seconds)) / rate
    columns = []
    for channel in range(channels):
        low, high = rng.uniform(0.01, 0.03) * rate, rng.uniform(0.06, 0.12) * rate
        phase = low * times + (high - low) * times**2 / (2 * seconds)
        loud = 0.3 + 0.2 * np.sin(2 * np.pi * (channel + 1) * times)
        columns.append(loud * np.sin(2 * np.pi * phase))
    sound = np.stack(columns, 1) + rng.normal(0, 0.003, (len(times), channels))
    return (np.rint(sound * 32768) / 32768).astype(np.float32)


def make(made, number, folder):
    """Returns a new file of a format, and the sound that it was made of."""
    rate = made.rates[number % len(made.rates)]
    channels = made.channels[number % len(made.channels)]
    sound = source(rate, channels, SECONDS[number % len(SECONDS)], number)
    plain, path = folder / "plain.wav", folder / f"clip{number}.{made.suffix}"
    soundfile.write(plain, sound, rate, "PCM_16")
    names = {"IN": str(plain), "OUT": str(path)}
    command = [names.get(word, word) for word in made.command.split()]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path, sound


def by_ffmpeg(path, rate):
    """Returns what ffmpeg decodes, (frames, channels); None if it does not."""
    about = _run(
        *("ffprobe", "-v", "error", "-of", "json", "-select_streams", "a:0"),
        *("-show_entries", "stream=channels", str(path)),
    )
    streams = json.loads(about or b"{}").get("streams")
    if not streams:
        return None
    data = _run(
        *("ffmpeg", "-v", "quiet", "-nostdin", "-i", str(path), "-map", "0:a:0"),
        *(("-ar", str(rate)) if rate else ()),
        *("-f", "f32le", "-c:a", "pcm_f32le", "-"),
    )
    return _frames(data, streams[0]["channels"])


def by_sox(path):
    """Returns what sox decodes, (frames, channels); None if it does not."""
    channels = _run("sox", "--i", "-c", str(path))
    if channels is None:
        return None
    data = _run("sox", "-D", str(path), "-t", "raw", "-e", "float", "-b", "32", "-")
    return _frames(data, int(channels))


def _run(*command):
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else None


def _frames(data, channels):
    if not data:
        return None
    return np.frombuffer(data, "<f4").reshape(-1, channels)


def judge(made, ours, sound, others):
    """Returns a verdict about a file, and what it rests on."""
    if ours.end == "rejected":
        return "rejected", ours.reason.replace("clip: ", "")
    if ours.samples is None:
        return "wrong", f"{ours.end}: {ours.reason}"
    found, other_ends = [], ""
    for name, theirs in others.items():
        if theirs is None:
            continue
        if theirs.shape[1] != ours.channels:
            found.append(f"{name} has {theirs.shape[1]} channels")
            continue
        shift, apart = _align(ours.samples, theirs)
        more = len(ours.samples) - len(theirs)
        found.append(f"{more:+} frames of {name}, late by {shift}, {apart:.1g} apart")
        if apart > made.precision:
            continue
        if more == 0 and shift == 0:
            return "equal", found[-1]
        if len(ours.samples) >= len(sound):
            other_ends = found[-1]
    if other_ends:
        return "other ends", other_ends
    about = f"{len(ours.samples)} frames of {len(sound)}; {'; '.join(found)}"
    return "wrong", about


def _align(ours, theirs):
    """Returns by how many frames theirs is late, and how far samples differ then."""
    best = (0, np.inf)
    length = len(ours) + len(theirs)
    product = np.fft.rfft(theirs[:, 0], length) * np.conj(
        np.fft.rfft(ours[:, 0], length)
    )
    peak = int(np.argmax(np.fft.irfft(product, length)))
    late = peak if peak < len(theirs) else peak - length
    for shift in {0, late}:
        start = max(0, -shift)
        common = min(len(ours) - start, len(theirs) - start - shift)
        a, b = ours[start : start + common], theirs[start + shift :][:common]
        apart = float(np.abs(a - b).max(initial=0)) if common > 0 else np.inf
        if apart < best[1]:
            best = (shift, apart)
    return best


def rows(files, only):
    """Yields the name of each format, the verdicts about its files, and the reasons."""
    for made in FORMATS:
        if only.lower() not in made.name.lower():
            continue
        verdicts: Counter[str] = Counter()
        reasons = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(files):
                path, sound = make(made, number, Path(folder))
                ours = record(str(path))
                others = {"ffmpeg": by_ffmpeg(path, ours.rate), "sox": by_sox(path)}
                verdict, why = judge(made, ours, sound, others)
                verdicts[verdict] += 1
                reasons.append(f"{verdict}: {why}")
        yield made.name, verdicts, reasons


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.formats")
    parser.add_argument("--files", type=int, default=8, help="of each format")
    parser.add_argument("--only", default="", help="formats with this in their name")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    total: Counter[str] = Counter()
    columns = ("equal", "other ends", "rejected", "wrong")
    print(f"{'':18}" + "".join(f"{name:>12}" for name in columns))
    for name, verdicts, reasons in rows(args.files, args.only):
        total += verdicts
        print(f"{name:18}" + "".join(f"{verdicts[c]:12}" for c in columns), flush=True)
        shown = reasons if args.verbose else sorted(set(reasons))
        for reason in shown:
            if args.verbose or not reason.startswith("equal"):
                print(f"    {reason}", flush=True)
    print(f"{'all':18}" + "".join(f"{total[c]:12}" for c in columns))
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
