"""Calls that a type checker must take; see test_keywords.py."""

from beam_pipeline import LogMel, Recipe, record
from beam_pipeline.api import plan, write_template
from beam_pipeline.transforms import Energy, Noise
from beam_pipeline.transforms.streams import ClipGain

record("in", "out", win_len=32768, hop=16384, tail="overlap", max_windows=3)
record("in", "out", win_seconds=1.0, hop_seconds=0.5, random_starts=True)
record("in", "out", win_len=1, label_from="name", label_separator=";", classes="a,b")
record("in", "out", win_len=1, label_from={"a.wav": "owl"}, classes=["a", "b"])
record("in", "out", win_len=1, events="events.csv", event_column="Species")
record("in", "out", win_len=1, event_targets=["class"], event_overlap=0.5)
record("in", "out", win_len=1, no_event="drop", target_columns=["age"])
record("in", "out", win_len=1, path_column="file", column_names="path,class")
record("in", "out", win_len=1, delimiter=";", columns="none", split_column="split")
record("in", "out", win_len=1, splits={"train": 0.8, "test": 0.2}, group_by="speaker")
record("in", "out", win_len=1, folds=5, stratify=True, split_salt=3)
record("in", "out", win_len=1, folds=5, split_moves="fold0=9k3XnQ2b")
record("in", "out", win_len=1, fingerprint=True, sample_rate=16000, channels="keep")
record("in", "out", win_len=1, channels=0, dtype="int16", stream=ClipGain())
record("in", "out", win_len=1, stream="high_pass(cutoff_hz=50)", keep=[Energy()])
record("in", "out", win_len=1, keep="energy()", copies=2, augment=Noise())
record("in", "out", win_len=1, features={"a": LogMel(n_mels=64), "b": "rms()"})
record("in", "out", win_len=1, features={"a": "rms()"}, encodings={"a": "tensor"})
record("in", "out", win_len=1, elements_per_file=100, num_elems=1000, order="listed")
record("in", "out", win_len=1, shard_bytes=1 << 20, seed=7, allow_truncated=True)
record("in", "out", win_len=1, num_shards=4, allow_nonfinite=False, whole_clips=True)
record("in", "out", win_len=1, member_bytes=1 << 20, compression="none")
record("in", "out", win_len=1, max_rejected="5%", overwrite=True, workers=2)
record("in", "out", append=True, known="skip", new_classes="add")
record("in", "out", retry=True, allow_truncated=True)
record("in", "out", recipe=Recipe(win_len=1), work_dir="/tmp/work")
record("in", "out", win_len=1, time_limit=60.0, memory_limit="8GB")
record("in", "out", win_len=1, time_limit=60, memory_limit=1 << 33)
record([{"path": "a.wav"}], "out", win_len=1, beam_args=["--runner=PrismRunner"])
plan("in", win_len=1, max_rejected=3)
write_template("in", "out", win_len=1, beam_args=["--runner=DataflowRunner"])
Recipe(win_len=1, splits="train=.8,test=.2").replace(seed=3)
