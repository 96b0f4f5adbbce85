"""Peers of Kaldi's filter bank."""

import kaldi_native_fbank as knf
import numpy as np

from tests.benchmarks.peers import Case


def kaldi_fbank(window, rate):
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = 80
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(rate, window * 32768)
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


CASES = [Case("kaldi_fbank(n_mels=80)", {}, {"kaldi-native-fbank": kaldi_fbank})]
