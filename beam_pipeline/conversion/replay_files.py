"""``replay_files``: files of TFRecords as ``tf.data``, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from beam_pipeline.codecs import INT64_LIST
from beam_pipeline.conversion.records import (
    InputFile,
    infer_features,
    settle_specs,
    with_dtypes,
)
from beam_pipeline.dataset.element_set import Seen
from beam_pipeline.dataset.metadata import Metadata, data_sets_of, parse_schema
from beam_pipeline.errors import InputError
from beam_pipeline.examples.record_parser import decode_columns
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import check_whole
from beam_pipeline.read.parse import (
    choose_parsing,
    make_parser,
    parse_dataset,
    read_files,
)
from beam_pipeline.storage import files


def replay_files(
    filenames: files.PathLike | Sequence[files.PathLike],
    *,
    features: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    schema: files.PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int = False,
    seed: int = 0,
    deterministic: bool = True,
    encoded: Sequence[str] = (),
    missing: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Reads files of ``tf.train.Example``, whoever wrote them.

    ::

        train = replay_files(paths, as_supervised=("image", "class"))
        test = replay_files(other_paths, as_supervised=("image", "id"))

    What the files hold is, in this order: what ``schema`` says; the ``metadata.json``
    in the files' folder or the one above; what the first 256 examples show. There, a
    feature that always has one value is a single value; one that always has n values is
    a list of n; any other is a list of any length. Bytes are texts.

    Parameters
    ----------
    filenames : path, or sequence of them
        Files compressed with GZIP or not; their content decides.
    schema : path, optional
        A schema of TensorFlow Metadata, ``schema.pbtxt``.
    dtypes : mapping, optional
        Feature to dtype: bytes become an array of it, integers other integers.
    deterministic : bool
        False: in the order in which examples are ready, which is faster.
    features, as_supervised, batch_size, drop_remainder, shuffle, seed, encoded, missing
        As in :func:`replay`.

    Returns
    -------
    tf.data.Dataset
        The number of elements is not known before they are read.

    Raises
    ------
    InputError
        If a file cannot be read or holds other records, or a feature is not there.
    OptionError
        If another argument has a wrong value.
    """
    paths = [*map(files.absolute, files.path_texts("filenames", filenames))]
    for path in paths:
        if not files.exists(path) or files.is_folder(path):
            what = "is a folder" if files.is_folder(path) else "does not exist"
            raise InputError(
                f"{path} {what}. Give files, without wildcards; `replay` and `convert` "
                "read folders."
            )
    if batch_size is not None:
        check_whole("batch_size", batch_size)
    metadata = _describe(paths, schema, dtypes or {})
    parsing = choose_parsing(metadata, features, as_supervised, encoded, missing)
    records = read_files(paths, shuffle=shuffle, seed=seed, deterministic=deterministic)
    elements = parse_dataset(
        records, parsing, _exact(make_parser(parsing, {}), parsing.specs),
        batch_size=batch_size, drop_remainder=drop_remainder,
        deterministic=deterministic,
    )  # fmt: skip
    return elements.prefetch(2)


def _describe(
    paths: Sequence[str], schema: files.PathLike | None, dtypes: Mapping[str, str]
) -> Metadata:
    """Returns metadata with the features of the files."""
    if schema is not None:
        path = files.given_path("schema", schema)
        specs = parse_schema(files.read_bytes(path), path)
        return Metadata(None, with_dtypes(specs, dtypes), (), {})
    for folder, metadata in data_sets_of(paths[:1]).items():
        shards = {files.join(folder, shard.file) for shard in metadata.shards()}
        if paths[0] in shards and not dtypes:
            return metadata
    sources = [InputFile(path, path, DEFAULT_SPLIT, 0) for path in paths]
    loose, records = infer_features(sources)
    seen = Seen()
    seen.add(loose.values(), decode_columns(records, loose))
    settled = {spec.name: spec for spec in settle_specs(loose.values(), seen)}
    return Metadata(None, with_dtypes(settled, dtypes), (), {})


def _exact(parse: Any, specs: Mapping[str, FeatureSpec]) -> Any:
    """Returns the parser with a check that narrow integers hold what is stored.

    TensorFlow's casts wrap around.
    """
    narrow = {
        name: spec.dtype
        for name, spec in specs.items()
        if spec.encoding == INT64_LIST and spec.dtype != "int64"
    }
    if not narrow:
        return parse
    wide = {name: tf.io.VarLenFeature(tf.int64) for name in narrow}

    def parse_exactly(serialised: Any) -> Any:
        stored = tf.io.parse_example(tf.reshape(serialised, (-1,)), wide)
        checks = []
        for name, dtype in narrow.items():
            values = stored[name].values
            same = tf.cast(tf.cast(values, dtype), tf.int64) == values
            message = f"Feature {name}: {dtype} cannot hold a stored value"
            checks.append(tf.debugging.Assert(tf.reduce_all(same), [message, values]))
        with tf.control_dependencies(checks):
            return parse(tf.identity(serialised))

    return parse_exactly
