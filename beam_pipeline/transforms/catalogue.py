"""The built-in transforms and augmentations, by the names that recipes use."""

from __future__ import annotations

from typing import Any

from beam_pipeline.transforms.ar import ArSpectrum, LinearPrediction
from beam_pipeline.transforms.augment import (
    Noise,
    RandomGain,
    RandomPolarity,
    Speed,
    TimeShift,
)
from beam_pipeline.transforms.base import Identity
from beam_pipeline.transforms.cepstral import Delta, Mfcc, Pcen
from beam_pipeline.transforms.cmvn import Cmvn
from beam_pipeline.transforms.cqt import Chroma, Cqt
from beam_pipeline.transforms.filters import BandPass, HighPass, LowPass
from beam_pipeline.transforms.fourier import Fft, Stft
from beam_pipeline.transforms.image import AsImage
from beam_pipeline.transforms.kaldi import KaldiFbank
from beam_pipeline.transforms.levels import Gain, LufsGain, Normalize, PeakGain, RmsGain
from beam_pipeline.transforms.loudness import Loudness, Lufs
from beam_pipeline.transforms.masks import SpecAugment
from beam_pipeline.transforms.pitch import Pyin, Yin
from beam_pipeline.transforms.recordings import Background, Reverb
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

BUILT_IN: dict[str, type[Any]] = {
    "analytic": Analytic,
    "ar_spectrum": ArSpectrum,
    "as_image": AsImage,
    "band_pass": BandPass,
    "chroma": Chroma,
    "cmvn": Cmvn,
    "cqt": Cqt,
    "delta": Delta,
    "downsample": Downsample,
    "fft": Fft,
    "gain": Gain,
    "high_pass": HighPass,
    "identity": Identity,
    "kaldi_fbank": KaldiFbank,
    "linear_prediction": LinearPrediction,
    "log_mel": LogMel,
    "loudness": Loudness,
    "low_pass": LowPass,
    "lufs": Lufs,
    "lufs_gain": LufsGain,
    "mel": Mel,
    "mfcc": Mfcc,
    "normalize": Normalize,
    "onset_strength": OnsetStrength,
    "pcen": Pcen,
    "peak_gain": PeakGain,
    "pre_emphasis": PreEmphasis,
    "pyin": Pyin,
    "resample": Resample,
    "rms": Rms,
    "rms_gain": RmsGain,
    "spec_augment": SpecAugment,
    "spectral_bandwidth": SpectralBandwidth,
    "spectral_centroid": SpectralCentroid,
    "spectral_contrast": SpectralContrast,
    "spectral_flatness": SpectralFlatness,
    "spectral_rolloff": SpectralRolloff,
    "stft": Stft,
    "yin": Yin,
    "zero_crossing_rate": ZeroCrossingRate,
}

# From samples to samples: any transform can follow these.
SIGNAL_TO_SIGNAL = frozenset({
    "band_pass", "downsample", "high_pass", "identity", "low_pass", "lufs_gain",
    "normalize", "peak_gain", "pre_emphasis", "resample", "rms_gain",
})  # fmt: skip

# These take any feature and keep its shape.
ON_FEATURES = frozenset({"as_image", "cmvn", "delta", "gain", "spec_augment"})

AUGMENTATIONS: dict[str, type[Any]] = {
    "background": Background,
    "noise": Noise,
    "random_gain": RandomGain,
    "random_polarity": RandomPolarity,
    "reverb": Reverb,
    "speed": Speed,
    "time_shift": TimeShift,
}
