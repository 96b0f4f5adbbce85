"""What holds for every transform, whatever it computes."""

from dataclasses import dataclass

import numpy as np

from beam_pipeline.transforms.steps import TRANSFORM

# Where the defaults are not enough, or other parameters take other ways. A transform
# that is not here is tried with its defaults.
CALLS = {
    "ar_spectrum": [
        f"ar_spectrum(method={method!r}{frames})"
        for method in ("burg", "yule_walker")
        for frames in ("", ",frame=400,hop=160")
    ],
    "as_image": ["log_mel()|as_image()", "gain(gain_db=0)|as_image(low=-1,high=1)"],
    "band_pass": ["band_pass(low_hz=300,high_hz=3000)"],
    "chroma": ["chroma()", "chroma(norm='none')", "chroma(f_min=1046.5,n_octaves=1)"],
    "cmvn": [
        f"log_mel()|cmvn({options})"
        for options in ("", "norm_vars=False,over='clip'", "window=5,min_window=3",
                        "window=6,center=True")
    ],
    "cqt": [f"cqt(kind={kind!r})" for kind in ("magnitude", "power", "db", "complex")],
    "delta": ["log_mel()|delta()", "log_mel()|delta(order=2)"],
    "fft": ["fft()", "fft(kind='power')"],
    "gain": ["gain(gain_db=-3)", "gain(gain_db=200)"],
    "high_pass": ["high_pass(cutoff_hz=300)"],
    "kaldi_fbank": ["kaldi_fbank()", "kaldi_fbank(snip_edges=False,use_energy=True)"],
    "linear_prediction": [
        f"linear_prediction(method={method!r},output={output!r})"
        for method in ("burg", "yule_walker")
        for output in ("coefficients", "gain")
    ] + ["linear_prediction(output='reflection',frame=400,hop=160,taper='hann')"],
    "log_mel": ["log_mel()", "log_mel(center=True,log='db',mel_scale='htk')"],
    "loudness": [f"loudness(weighting={w!r})" for w in ("a", "k", "none")],
    "low_pass": ["low_pass(cutoff_hz=3000)"],
    "mel": ["mel(center=True,pad_mode='reflect',norm='none')"],
    "mfcc": ["mfcc()", "mfcc(lifter=22)"],
    "normalize": [
        f"normalize(kind={kind!r})"
        for kind in ("log", "mean", "median", "minmax", "standard")
    ],
    "pcen": ["pcen()", "pcen(bias=0)"],
    "pyin": [f"pyin(unvoiced={u!r})" for u in ("zero", "guess", "negative")],
    "resample": ["resample(rate_hz=12000)"],
    "spec_augment": ["log_mel()|spec_augment()"],
    "stft": ["stft()", "stft(kind='db')", "stft(center=True,pad_mode='reflect')"],
}  # fmt: skip
EVERY_CALL = [
    call for name in TRANSFORM.table for call in CALLS.get(name, [f"{name}()"])
]
# One call of each transform, where the parameters are not what is tested.
ONE_CALL_OF_EACH = [CALLS.get(name, [f"{name}()"])[-1] for name in TRANSFORM.table]
# Those that can pass NaN and infinity on.
FLOAT_CALLS = [call for call in EVERY_CALL if "as_image" not in call]


def noise(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


@dataclass(frozen=True)
class Slower:
    """An augmentation that moves sounds to other frames, and says so."""

    moves_time = True

    def augment(self, windows, keys, sample_rate_hz):
        return np.repeat(windows, 2, axis=-1)[..., : windows.shape[-1]]
