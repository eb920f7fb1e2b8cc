"""Fitted methods on disk: weights as safetensors, everything else as JSON. Loading runs no code from the files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from .._files import write
from .._version import __version__
from ..graphs import Task
from ..nn.backbones import BackboneFactory
from ..nn.training import Epoch
from .base import Method
from .neural import Neural
from .prediction import MethodError

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "method.json"
NOT_STORED = {"vanilla", "members", "device"}  # parts are stored as methods; a device belongs to a machine


def save(method: Method, folder: str | os.PathLike[str]) -> None:
    """Write a fitted method. Each file is written whole or not at all; a sum in the second vouches for the first."""
    if not method.is_fitted:
        raise MethodError(f"{type(method).__name__} is not fitted, so there is nothing to save: call fit(task) first")
    tensors: dict[str, Tensor] = {}
    config = {"format": FORMAT, "credalgnn": __version__, **_described(method, "", tensors)}
    weights = save_tensors({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    config["weights"] = hashlib.blake2b(weights, digest_size=16).hexdigest()
    path = Path(folder)
    try:
        for name, content in ((WEIGHTS, weights), (CONFIG, json.dumps(config, indent=1).encode())):
            write(path / name, content)
    except OSError as error:
        raise MethodError(f"{path}: cannot be written ({error.strerror})") from None


def load_method(
    folder: str | os.PathLike[str],
    task: Task | None = None,
    *,
    any_task: bool = False,
    backbone: BackboneFactory | None = None,
    device: str = "cpu",
) -> Method:
    """Read what ``save`` wrote. With ``task`` the method predicts on the task's graph by default.

    A task other than the one it was fitted on is refused, unless ``any_task``. ``backbone`` is needed where the method
    was given a function to make its backbone: functions are not stored. Nor is the device.
    """
    if task is not None and not isinstance(task, Task):
        raise MethodError(
            f"a Task is wanted, not {type(task).__name__}; for a graph, load without it and predict(graph)"
        )
    path = Path(folder)
    try:
        config, weights = json.loads((path / CONFIG).read_bytes()), (path / WEIGHTS).read_bytes()
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); was a method saved here?") from None
    except ValueError:
        raise MethodError(f"{path / CONFIG}: not a JSON file") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise MethodError(f"{path / CONFIG}: not a method of format {FORMAT}, which this version reads")
    if config.get("weights") != hashlib.blake2b(weights, digest_size=16).hexdigest():
        raise MethodError(f"{path / WEIGHTS}: damaged, or of another save than {CONFIG}; save the method again")
    try:
        method = _made(config, "", load_tensors(weights), backbone, device)
    except MethodError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
        SafetensorError,
    ) as error:
        raise MethodError(f"{path / CONFIG}: does not describe a method ({error})") from None
    if task is not None:
        if method.fingerprint != task.fingerprint and not any_task:
            raise MethodError(
                f"{path}: fitted on another task or split (fingerprint {method.fingerprint}, not {task.fingerprint}); "
                "any_task=True predicts all the same"
            )
        for part in _whole(method):
            part.graph_ = task.prediction_graph
    return method


def _whole(method: Method) -> Iterator[Method]:
    """The method, and the methods it is made of."""
    yield method
    for part in method._parts().values():
        yield from _whole(part)


def _described(method: Method, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A method as JSON; its tensors, and those of its parts, go into ``tensors``."""
    tensors.update({prefix + name: tensor for name, tensor in method._tensors().items()})
    config = {field.name: getattr(method, field.name) for field in fields(method) if field.name not in NOT_STORED}
    described = {
        "method": method.name,
        "config": {name: None if callable(value) else value for name, value in config.items()},
        "fingerprint": method.fingerprint,
        "protocol": method.protocol,
        "num_features": method.num_features,
        "class_names": method.class_names,
    }
    if isinstance(method, Neural):
        described["history"] = method.history_
    parts = {name: _described(part, f"{prefix}{name}.", tensors) for name, part in method._parts().items()}
    return {**described, "parts": parts} if parts else described


def _made(config: Mapping[str, Any], prefix: str, tensors: Mapping[str, Tensor], backbone: Any, device: str) -> Method:
    """The inverse of ``_described``."""
    from . import METHODS

    options = dict(config["config"])
    if "backbone" in options and options["backbone"] is None:
        if backbone is None:
            raise MethodError(
                "this method's backbone was made by a function: give it again, load_method(.., backbone=)"
            )
        options["backbone"] = backbone
    kind = METHODS[config["method"]]
    method = kind(**options, device=device) if issubclass(kind, Neural) else kind(**options)
    method.protocol = config["protocol"]
    method.graph_, method.fingerprint = None, str(config["fingerprint"])
    method.num_features, method.class_names = int(config["num_features"]), tuple(config["class_names"])
    parts = config.get("parts", {})
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    method._adopt({name: _made(part, f"{prefix}{name}.", tensors, backbone, device) for name, part in parts.items()})
    inner = tuple(f"{name}." for name in parts)
    method._restore({name: tensor for name, tensor in own.items() if not name.startswith(inner)})
    if isinstance(method, Neural):
        method.history_ = [Epoch(*line) for line in config["history"]]
    return method
