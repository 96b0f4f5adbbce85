"""The jobs that we measure ourselves against, written without our package.

`run_signal` and `run_log_mel` are what a good engineer builds in an afternoon from
stock parts: Beam, soundfile, librosa and `tf.train.Example`. `loop_signal` and
`loop_log_mel` do the least work that gives equivalent shards, in one process without
Beam or TensorFlow: the floor on one core. `read_batches` reads shards with `tf.data`.

The jobs take a glob of WAV files in one folder per class and a prefix for the shards.
They write one example per second of audio, with the keys class, filepath, fs, target,
win_start_idx and either signal or log_mel.
"""

import glob
import os
import struct
from pathlib import Path

import google_crc32c
import librosa
import numpy as np
import scipy.fft
import scipy.signal
import soundfile
from isal import isal_zlib

N_FFT = 1024
HOP = 256
N_MELS = 64
FLOOR = 1e-10
BLOCK_WINDOWS = 16
READ_BUFFER = 1 << 20
SUFFIX = ".tfrecord.gz"


def find_files(input_glob):
    """Return the sorted paths and the sorted names of their folders, the classes."""
    paths = sorted(glob.glob(input_glob, recursive=True))
    return paths, sorted({label_of(path) for path in paths})


def label_of(path):
    """Return the name of the folder that holds a file."""
    return Path(path).parent.name


# Plain Beam. Beam and TensorFlow are imported where they are used, because the loops
# are to be measured without them; whoever takes the time imports them beforehand.


def run_signal(input_glob, output_prefix, num_shards=4):
    """Write the samples of every window, with stock parts."""
    run_beam(input_glob, output_prefix, num_shards, name="signal", feature=signal)


def run_log_mel(input_glob, output_prefix, num_shards=4):
    """Write the log-mel spectrum of every window, with stock parts."""
    run_beam(input_glob, output_prefix, num_shards, name="log_mel", feature=log_mel)


def run_beam(input_glob, output_prefix, num_shards, *, name, feature):
    """Read, cut, compute, encode and write, with the in-process runner."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    paths, classes = find_files(input_glob)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        (
            pipeline
            | "Paths" >> beam.Create(paths)
            | "Spread" >> beam.Reshuffle()
            | "Cut" >> beam.FlatMap(read_windows)  # path, fs, start, samples
            | "Encode" >> beam.Map(to_example, name, feature, classes)  # bytes
            | "Write"
            >> beam.io.WriteToTFRecord(
                output_prefix, file_name_suffix=SUFFIX, num_shards=num_shards
            )
        )


def read_windows(path):
    """Yield every whole second of a file with what is known of it."""
    signal, fs = soundfile.read(path, dtype="float32")
    for start in range(0, len(signal) - fs + 1, fs):
        yield path, fs, start, signal[start : start + fs]


def to_example(window, name, feature, classes):
    """Return a window as a serialised `tf.train.Example`."""
    import tensorflow as tf

    path, fs, start, samples = window
    values = feature(samples, fs).ravel()

    def text(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    def number(value):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
        "class": text(label_of(path)),
        "target": number(classes.index(label_of(path))),
        "filepath": text(path),
        "win_start_idx": number(start),
        "fs": number(fs),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString()


def signal(samples, fs):
    """Return the samples of a window as they are."""
    del fs
    return samples


def log_mel(samples, fs):
    """Return the log-mel spectrum of a window, shape (time frames, bands), float32."""
    power = librosa.feature.melspectrogram(
        y=samples,
        sr=fs,
        n_fft=N_FFT,
        hop_length=HOP,
        n_mels=N_MELS,
        center=False,
        power=2.0,
    )
    return np.log(np.maximum(power.T, FLOOR))


# The loop.


def loop_signal(input_glob, output_prefix, num_shards=4):
    """Write the samples of every window, with as little work as possible."""
    run_loop(input_glob, output_prefix, num_shards, "signal", keep_signal)


def loop_log_mel(input_glob, output_prefix, num_shards=4):
    """Write the log-mel spectrum of every window, with as little work as possible."""
    run_loop(input_glob, output_prefix, num_shards, "log_mel", block_log_mel)


def run_loop(input_glob, output_prefix, num_shards, name, make_feature):
    """Write shard after shard, each from its share of the files."""
    paths, classes = find_files(input_glob)
    for shard in range(num_shards):
        shard_name = f"{output_prefix}-{shard:05d}-of-{num_shards:05d}{SUFFIX}"
        with open(shard_name, "wb") as output:
            # 31: a GZIP stream with the largest history.
            stream = isal_zlib.compressobj(level=3, wbits=31)
            for path in paths[shard::num_shards]:
                target = classes.index(label_of(path))
                for example in loop_examples(path, target, name, make_feature):
                    output.write(stream.compress(frame_record(example)))
            output.write(stream.flush())


def loop_examples(path, target, name, make_feature):
    """Yield the serialised examples of one file, reading it in blocks."""
    with soundfile.SoundFile(path) as file:
        fs = file.samplerate
        feature = make_feature(fs)
        # Entries in the order of their keys. All but the values and the start are the
        # same for the whole file.
        head = (
            entry("class", bytes_feature(label_of(path).encode()))
            + entry("filepath", bytes_feature(path.encode()))
            + entry("fs", int64_feature(fs))
        )
        tail = entry("target", int64_feature(target))
        start = 0
        buffer = np.empty(BLOCK_WINDOWS * fs, np.float32)
        while True:
            block = file.read(out=buffer)
            windows = len(block) // fs
            values = feature(block[: windows * fs].reshape(windows, fs))
            for row in values.reshape(windows, values[0].size if windows else 0):
                raw = row.astype("<f4", copy=False).tobytes()
                body = b"".join(
                    (
                        head,
                        float_entry_head(name, len(raw)),
                        raw,
                        tail,
                        entry("win_start_idx", int64_feature(start)),
                    )
                )
                yield b"\x0a" + varint(len(body)) + body
                start += fs
            if windows < BLOCK_WINDOWS:
                return


def keep_signal(fs):
    """Return the feature that is the windows themselves."""
    del fs
    return np.asarray


def block_log_mel(fs):
    """Return a function from a block of windows to their log-mel spectra."""
    taper = scipy.signal.get_window("hann", N_FFT).astype(np.float32)
    bank = librosa.filters.mel(sr=fs, n_fft=N_FFT, n_mels=N_MELS).T.copy()
    # Arrays of this size, if allocated anew for every block, are often given back to
    # the system in between, and getting them again takes longer than the arithmetic.
    shape = (BLOCK_WINDOWS, 1 + (fs - N_FFT) // HOP)
    tapered = np.empty((*shape, N_FFT), np.float32)
    squares = np.empty((2, *shape, N_FFT // 2 + 1), np.float32)

    def log_mel_of_block(windows):
        count = len(windows)
        frames = np.lib.stride_tricks.sliding_window_view(windows, N_FFT, axis=1)
        np.multiply(frames[:, ::HOP], taper, out=tapered[:count])
        spectra = scipy.fft.rfft(tapered[:count])
        power, imaginary = squares[:, :count]
        np.square(spectra.real, out=power)
        np.square(spectra.imag, out=imaginary)
        power += imaginary
        return np.log(np.maximum(power @ bank, np.float32(FLOOR)))

    return log_mel_of_block


# `tf.train.Example` and TFRecord by hand. Example.features is field 1, the entries of
# its map are field 1 of that, and an entry has the key in field 1 and a Feature in
# field 2: bytes_list = 1, float_list = 2, int64_list = 3, each with `value` = 1.


def varint(value):
    """Return a number of at least 0 in base 128, lowest digit first."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def field(number, payload):
    """Return a length-delimited field."""
    return bytes((number << 3 | 2,)) + varint(len(payload)) + payload


def entry(key, feature):
    """Return an entry of the map of features."""
    return field(1, field(1, key.encode()) + field(2, feature))


def bytes_feature(value):
    """Return a Feature that holds one string of bytes."""
    return field(1, field(1, value))


def int64_feature(value):
    """Return a Feature that holds one integer of at least 0."""
    return field(3, field(1, varint(value)))


def float_entry_head(key, size):
    """Return what precedes `size` bytes of packed floats in the entry of `key`."""
    head = b""
    for tag in (0x0A, 0x12, 0x12):
        head = bytes((tag,)) + varint(size + len(head)) + head
    key_field = field(1, key.encode())
    return b"\x0a" + varint(len(key_field) + len(head) + size) + key_field + head


def frame_record(data):
    """Return a TFRecord: length, its checksum, the data, their checksum."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, masked_crc(length), data, masked_crc(data)))


def masked_crc(data):
    """Return the CRC-32C of the data, rotated and offset as TFRecord wants it."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


# Reading.


def read_batches(files, batch_size, variant):
    """Return a `tf.data.Dataset` of batches of parsed examples, in any order.

    `variant` is one of the ways that guides recommend: "parse_example" and
    "parse_single_example" after parallel reads, "interleave" and "interleave_parsed".
    """
    import tensorflow as tf

    spec = spec_of(next(iter(tf.data.TFRecordDataset(files[0], "GZIP"))).numpy())
    auto = tf.data.AUTOTUNE
    parallel = min(len(files), os.cpu_count())

    def open_files(names, **options):
        return tf.data.TFRecordDataset(names, "GZIP", READ_BUFFER, **options)

    def open_batches(name):
        return open_files(name).batch(batch_size).map(parse)

    def parse(batch):
        return tf.io.parse_example(batch, spec)

    def interleave(make):
        names = tf.data.Dataset.from_tensor_slices(files)
        return names.interleave(
            make, cycle_length=parallel, num_parallel_calls=auto, deterministic=False
        )

    if variant == "parse_example":
        records = open_files(files, num_parallel_reads=parallel)
        batches = records.batch(batch_size).map(parse, auto)
    elif variant == "parse_single_example":
        records = open_files(files, num_parallel_reads=parallel)
        examples = records.map(lambda one: tf.io.parse_single_example(one, spec), auto)
        batches = examples.batch(batch_size)
    elif variant == "interleave":
        batches = interleave(open_files).batch(batch_size).map(parse, auto)
    elif variant == "interleave_parsed":
        batches = interleave(open_batches)
    else:
        raise ValueError(f"no such variant: {variant!r}")
    options = tf.data.Options()
    options.deterministic = False
    return batches.prefetch(auto).with_options(options)


def spec_of(serialised):
    """Return the parsing specification of a serialised example's features."""
    import tensorflow as tf

    kinds = {"bytes_list": tf.string, "float_list": tf.float32, "int64_list": tf.int64}
    spec = {}
    example = tf.train.Example.FromString(serialised)
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        length = len(getattr(feature, kind).value)
        shape = [] if length == 1 else [length]
        spec[name] = tf.io.FixedLenFeature(shape, kinds[kind])
    return spec
