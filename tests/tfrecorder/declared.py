"""How the classes of these tests declare what is stored."""

from beam_pipeline.tfrecorder import tfrecordable


def declared(name, dtype):
    """A stored attribute, whose value is in ``_name``."""
    return tfrecordable(dtype=dtype)(lambda self: getattr(self, f"_{name}"))
