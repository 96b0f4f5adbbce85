"""From windows of samples to features; no files, no Beam.

In: expressions, and windows (float32) with their sample rate. Out: one array for each
window, the same bytes in any block. Other steps choose windows (:mod:`.selection`),
place them (:mod:`.placement`), change copies of them (:mod:`.augment`,
:mod:`.recordings`), or change a clip's samples before windows are cut
(:mod:`.streams`). Read :mod:`.base` first: it defines what a transform is.

::

    text -> expressions -> catalogue, selection, placement, augment, streams
                               |
        signals, filters, levels, loudness      samples -> samples, or a level
        fourier, spectral, kaldi, cqt           samples -> spectra
        ar                                      samples -> models, and their spectra
        shape, pitch                            samples -> a few numbers per frame
        cepstral                                mel spectra -> cepstra, PCEN, slopes
        cmvn                                    features -> features of mean 0
        masks                                   features -> features of copies
        dither                                  samples -> samples of a clip's stream
        image                                   features -> grey levels
"""

from beam_pipeline.transforms.ar import ArSpectrum, LinearPrediction
from beam_pipeline.transforms.augment import (
    Noise,
    RandomGain,
    RandomPolarity,
    Speed,
    TimeShift,
)
from beam_pipeline.transforms.base import Chain, Identity, Transform, per_window
from beam_pipeline.transforms.cepstral import Delta, Mfcc, Pcen
from beam_pipeline.transforms.cmvn import Cmvn
from beam_pipeline.transforms.cqt import Chroma, Cqt
from beam_pipeline.transforms.dither import Dither
from beam_pipeline.transforms.filters import BandPass, HighPass, LowPass
from beam_pipeline.transforms.fourier import Fft, Stft
from beam_pipeline.transforms.image import AsImage
from beam_pipeline.transforms.kaldi import KaldiFbank
from beam_pipeline.transforms.levels import Gain, LufsGain, Normalize, PeakGain, RmsGain
from beam_pipeline.transforms.loudness import Loudness, Lufs
from beam_pipeline.transforms.masks import SpecAugment
from beam_pipeline.transforms.pitch import Pyin, Yin
from beam_pipeline.transforms.placement import Peaks, Sounds
from beam_pipeline.transforms.recordings import Background, Reverb
from beam_pipeline.transforms.selection import AcEnergy, Active, Energy, Peak
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
from beam_pipeline.transforms.signals import Analytic, Downsample, PreEmphasis, Resample
from beam_pipeline.transforms.spectral import LogMel, Mel

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
