"""Trained models, of files and of code, as functions of arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from beam_pipeline.errors import InputError, OptionError, needing
from beam_pipeline.storage.files import PathLike
from beam_pipeline.transforms.own_code import import_own

# Takes the features of n windows; returns an array of scores, (n, classes).
Model = Callable[[Any], Any]


def model_of(given: PathLike | Model) -> Model:
    """Returns a model that takes and returns arrays.

    Parameters
    ----------
    given : path, callable or torch.nn.Module
        A local file: ``.keras`` of Keras, ``.pt2`` of ``torch.export.save``, ``.pt`` of
        TorchScript; or a function, or its name, ``module:function``.

    Raises
    ------
    OptionError
        If it is none of these, or there is no such function.
    InputError
        If the file does not exist or cannot be loaded, or its framework is not
        installed.
    """
    if isinstance(given, str | os.PathLike):
        given = _loaded(os.fspath(given))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.nn.Module):
        return _on_tensors(given.eval())
    if not callable(given):
        raise _no_model(given)
    return given


def _no_model(given: object) -> OptionError:
    kinds = ", ".join(_LOADERS)
    need = f"must be a file {kinds}, or a function as module:function"
    return OptionError("model", need, given)


def _loaded(model: str) -> Any:
    """Returns what is in a file, or what a name stands for."""
    suffix = os.path.splitext(model)[1].lower()
    if suffix in _LOADERS:
        if not os.path.isfile(model):
            raise InputError(f"{model}: there is no such file. Check `model`.")
        load, package = _LOADERS[suffix]
        try:
            with needing(package, model):
                return load(model)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{model} cannot be loaded: {error}. A .keras file is one of "
                "`model.save`, a .pt2 file one of `torch.export.save`, and a .pt file "
                "one of `torch.jit.save`. For a model of any other kind, give a "
                "function that calls it, module:function."
            ) from error
    module, _, name = model.partition(":")
    if not (module and name):
        raise _no_model(model)
    try:
        return attrgetter(name)(import_own(module))
    except (ImportError, AttributeError) as error:
        raise OptionError("model", f"cannot be imported: {error}", model) from error


def _keras_model(path: str) -> Any:
    import keras

    return keras.saving.load_model(path, compile=False).predict_on_batch


def _exported_model(path: str) -> Model:
    import torch

    return _on_tensors(torch.export.load(path).module())


def _torch_script(path: str) -> Model:
    import torch

    return _on_tensors(torch.jit.load(path, map_location="cpu").eval())


def _on_tensors(module: Any) -> Model:
    """Returns a model that takes and returns arrays, of one that takes tensors."""
    import torch

    def predicted(values: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(values)).numpy()

    return predicted


# The suffix of a file -> what loads it, and the package that it needs.
_LOADERS: dict[str, tuple[Callable[[str], Any], str]] = {
    ".keras": (_keras_model, "keras"),
    ".pt2": (_exported_model, "torch"),
    ".pt": (_torch_script, "torch"),
}
