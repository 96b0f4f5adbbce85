"""From windows of samples to features; no files, no Beam.

In: expressions, and windows (float32) with their sample rate. Out: one array for each
window, the same bytes in any block. Read :mod:`.base` first: it defines what a
transform is. Parameters are fields of frozen dataclasses, declared as in
:mod:`beam_pipeline.parameters`.

::

    text -> steps -> clip_steps    a clip's samples, before windows are cut; where they
              |                    are, and which are kept
              |      augment       copies of windows, and masks of their features
              |
            signals                         samples -> samples
            frames, mel                     samples -> spectra, and cepstra
            ar                              samples -> models, and their spectra
            descriptors, pitch              samples -> a few numbers per frame, or one

A person's own functions and classes are found by :mod:`.own_code`.
"""

from beam_pipeline.transforms.ar import ArSpectrum as ArSpectrum
from beam_pipeline.transforms.ar import LinearPrediction as LinearPrediction
from beam_pipeline.transforms.augment import Background as Background
from beam_pipeline.transforms.augment import Noise as Noise
from beam_pipeline.transforms.augment import RandomGain as RandomGain
from beam_pipeline.transforms.augment import RandomPolarity as RandomPolarity
from beam_pipeline.transforms.augment import Reverb as Reverb
from beam_pipeline.transforms.augment import SpecAugment as SpecAugment
from beam_pipeline.transforms.augment import Speed as Speed
from beam_pipeline.transforms.augment import TimeShift as TimeShift
from beam_pipeline.transforms.base import AsImage as AsImage
from beam_pipeline.transforms.base import Chain as Chain
from beam_pipeline.transforms.base import Identity as Identity
from beam_pipeline.transforms.base import Transform as Transform
from beam_pipeline.transforms.base import per_window as per_window
from beam_pipeline.transforms.clip_steps import AcEnergy as AcEnergy
from beam_pipeline.transforms.clip_steps import Active as Active
from beam_pipeline.transforms.clip_steps import ClipGain as ClipGain
from beam_pipeline.transforms.clip_steps import Dither as Dither
from beam_pipeline.transforms.clip_steps import Energy as Energy
from beam_pipeline.transforms.clip_steps import Peak as Peak
from beam_pipeline.transforms.clip_steps import Peaks as Peaks
from beam_pipeline.transforms.clip_steps import Sounds as Sounds
from beam_pipeline.transforms.descriptors import Loudness as Loudness
from beam_pipeline.transforms.descriptors import Lufs as Lufs
from beam_pipeline.transforms.descriptors import LufsGain as LufsGain
from beam_pipeline.transforms.descriptors import OnsetStrength as OnsetStrength
from beam_pipeline.transforms.descriptors import Rms as Rms
from beam_pipeline.transforms.descriptors import SpectralBandwidth as SpectralBandwidth
from beam_pipeline.transforms.descriptors import SpectralCentroid as SpectralCentroid
from beam_pipeline.transforms.descriptors import SpectralContrast as SpectralContrast
from beam_pipeline.transforms.descriptors import SpectralFlatness as SpectralFlatness
from beam_pipeline.transforms.descriptors import SpectralRolloff as SpectralRolloff
from beam_pipeline.transforms.descriptors import ZeroCrossingRate as ZeroCrossingRate
from beam_pipeline.transforms.frames import Chroma as Chroma
from beam_pipeline.transforms.frames import Cqt as Cqt
from beam_pipeline.transforms.frames import Fft as Fft
from beam_pipeline.transforms.frames import Stft as Stft
from beam_pipeline.transforms.mel import Cmvn as Cmvn
from beam_pipeline.transforms.mel import Delta as Delta
from beam_pipeline.transforms.mel import KaldiFbank as KaldiFbank
from beam_pipeline.transforms.mel import LogMel as LogMel
from beam_pipeline.transforms.mel import Mel as Mel
from beam_pipeline.transforms.mel import Mfcc as Mfcc
from beam_pipeline.transforms.mel import Pcen as Pcen
from beam_pipeline.transforms.pitch import Pyin as Pyin
from beam_pipeline.transforms.pitch import Yin as Yin
from beam_pipeline.transforms.signals import Analytic as Analytic
from beam_pipeline.transforms.signals import BandPass as BandPass
from beam_pipeline.transforms.signals import Downsample as Downsample
from beam_pipeline.transforms.signals import Gain as Gain
from beam_pipeline.transforms.signals import HighPass as HighPass
from beam_pipeline.transforms.signals import LowPass as LowPass
from beam_pipeline.transforms.signals import Normalize as Normalize
from beam_pipeline.transforms.signals import PeakGain as PeakGain
from beam_pipeline.transforms.signals import PreEmphasis as PreEmphasis
from beam_pipeline.transforms.signals import Resample as Resample
from beam_pipeline.transforms.signals import RmsGain as RmsGain

__all__ = [*sorted(name for name in globals() if name[0].isupper()), "per_window"]
