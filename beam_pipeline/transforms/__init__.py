"""From windows of samples to features; no files, no Beam.

In: expressions, and windows (float32) with their sample rate. Out: one array for each
window, the same bytes in any block. Read :mod:`.base` first: it defines what a
transform is. Parameters are fields of frozen dataclasses, declared as in
:mod:`beam_pipeline.parameters`.

::

    text -> steps -> select        which windows of a clip there are
              |      stream        a clip's samples, before windows are cut
              |      augment       copies of windows, and masks of their features
              |
            signals, loudness               samples -> samples, or a level
            frames, mel, cqt                samples -> spectra
            ar                              samples -> models, and their spectra
            shape, pitch                    samples -> a few numbers per frame
            cepstral                        mel spectra -> cepstra, PCEN, slopes, CMVN

A person's own functions and classes are found by :mod:`.own_code`; :mod:`.describe`
lists all steps, and what they cost.
"""

from beam_pipeline.transforms.ar import ArSpectrum, LinearPrediction
from beam_pipeline.transforms.augment import (
    Background,
    Noise,
    RandomGain,
    RandomPolarity,
    Reverb,
    SpecAugment,
    Speed,
    TimeShift,
)
from beam_pipeline.transforms.base import (
    AsImage,
    Chain,
    Identity,
    Transform,
    per_window,
)
from beam_pipeline.transforms.cepstral import Cmvn, Delta, Mfcc, Pcen
from beam_pipeline.transforms.cqt import Chroma, Cqt
from beam_pipeline.transforms.frames import Fft, Stft
from beam_pipeline.transforms.loudness import Loudness, Lufs, LufsGain
from beam_pipeline.transforms.mel import KaldiFbank, LogMel, Mel
from beam_pipeline.transforms.pitch import Pyin, Yin
from beam_pipeline.transforms.select import (
    AcEnergy,
    Active,
    Energy,
    Peak,
    Peaks,
    Sounds,
)
from beam_pipeline.transforms.shape import (
    OnsetStrength,
    Rms,
    SpectralBandwidth,
    SpectralCentroid,
    SpectralContrast,
    SpectralFlatness,
    SpectralRolloff,
    ZeroCrossingRate,
)
from beam_pipeline.transforms.signals import (
    Analytic,
    BandPass,
    Downsample,
    Gain,
    HighPass,
    LowPass,
    Normalize,
    PeakGain,
    PreEmphasis,
    Resample,
    RmsGain,
)
from beam_pipeline.transforms.stream import ClipGain, Dither

__all__ = [
    "AcEnergy",
    "Active",
    "Analytic",
    "ArSpectrum",
    "AsImage",
    "Background",
    "BandPass",
    "Chain",
    "Chroma",
    "ClipGain",
    "Cmvn",
    "Cqt",
    "Delta",
    "Dither",
    "Downsample",
    "Energy",
    "Fft",
    "Gain",
    "HighPass",
    "Identity",
    "KaldiFbank",
    "LinearPrediction",
    "LogMel",
    "Loudness",
    "LowPass",
    "Lufs",
    "LufsGain",
    "Mel",
    "Mfcc",
    "Noise",
    "Normalize",
    "OnsetStrength",
    "Pcen",
    "Peak",
    "PeakGain",
    "Peaks",
    "PreEmphasis",
    "Pyin",
    "RandomGain",
    "RandomPolarity",
    "Resample",
    "Reverb",
    "Rms",
    "RmsGain",
    "Sounds",
    "SpecAugment",
    "SpectralBandwidth",
    "SpectralCentroid",
    "SpectralContrast",
    "SpectralFlatness",
    "SpectralRolloff",
    "Speed",
    "Stft",
    "TimeShift",
    "Transform",
    "Yin",
    "ZeroCrossingRate",
    "per_window",
]
