"""Fitted methods on disk: tensors as safetensors, everything else as JSON. Loading runs no code from the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors.torch import save as save_tensors
from torch import Tensor

from .._version import __version__
from ..graphs import Task
from ..nn.backbones import BackboneFactory
from ..nn.building import at_most
from ..nn.training import Epoch
from ..runtime.errors import translated
from ..runtime.files import checksum, sealed_with, to_json, write
from ..runtime.reading import Unreadable, parse_json, parse_tensors, read_bytes
from ..runtime.texts import one_line
from .calibration import CalibrationNodes
from .diagnostics import FeatureRange
from .prediction import MethodError
from .registry import find_method, known_method, method_path

if TYPE_CHECKING:
    from .base import Method

FORMAT = 6
WEIGHTS, CONFIG = "model.safetensors", "method.json"
_CALIBRATION = "calibration."  # prefix of the state of calibration nodes
_RANGE = "features."  # prefix of the feature range of training


def save(method: Method, folder: str | os.PathLike[str]) -> None:
    """Write a fitted method; each file whole or not at all, the second with checksums of both."""
    if not method.is_fitted:
        raise MethodError(f"{type(method).__name__} is not fitted, so there is nothing to save: call fit(task) first")
    tensors: dict[str, Tensor] = {}
    config = {"format": FORMAT, "credalgnn": __version__, **_described(method, "", tensors)}
    weights = save_tensors({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    config["weights"] = checksum(weights)
    path = Path(folder)
    with translated(
        TypeError,
        lambda error: MethodError(
            f"{type(method).__name__} cannot be saved ({error}): use hyper-parameters that JSON can hold"
        ),
    ):
        described = to_json(config, allow_nan=True)  # a training curve may have gaps
    with translated(OSError, lambda error: MethodError(f"{path}: cannot be written ({error.strerror})")):
        for name, content in ((WEIGHTS, weights), (CONFIG, described)):
            write(path / name, content)


def load_method(
    folder: str | os.PathLike[str],
    task: Task | None = None,
    *,
    any_task: bool = False,
    method: type[Method] | str | None = None,
    backbone: BackboneFactory | None = None,
    device: str = "cpu",
) -> Method:
    """Read a method that ``Method.save`` wrote; runs no code from the files.

    Args:
        folder: Folder of the method.
        task: Task whose graph is predicted by default; one that the method was not fitted on is refused.
        any_task: Allow any task.
        method: Class, or its import path, of a method that is neither built in nor an installed plug-in, unless its
            module is imported already: a file alone never makes anything be imported.
        backbone: Function that makes the backbone, for a method that was fitted with one: functions are not stored.
        device: Device for predictions; it belongs to a machine and is not stored.

    Example:
        >>> method = load_method("runs/energy", cg.load_task("digits"))
    """
    if isinstance(method, str):
        method = find_method(method)
    if task is not None and not isinstance(task, Task):
        raise MethodError(
            f"a Task is wanted, not {type(task).__name__}; for a graph, load without it and predict(graph)"
        )
    path = Path(folder)
    config, weights = read_files(path)
    try:
        tensors = parse_tensors(weights)
        with at_most(2 * sum(tensor.numel() for tensor in tensors.values())):
            loaded = _made(config, "", tensors, _Options(method, backbone, device))
    except MethodError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
        AssertionError,
        MemoryError,
        RecursionError,
    ) as error:
        reason = f"{one_line(str(error)):.200}"
        raise MethodError(f"{path / CONFIG}: does not describe a method ({reason}); save it again") from None
    if task is not None:
        same = loaded.fingerprint == task.fingerprint
        if not same and not any_task:
            raise MethodError(
                f"{path}: fitted on another task or split (fingerprint {loaded.fingerprint}, not {task.fingerprint}); "
                "any_task=True predicts all the same"
            )
        for part in _whole(loaded):
            part.graph_, part.train_nodes_ = task.prediction_graph, task.split.train if same else None
    return loaded


def read_files(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the contents of the two files in a folder, if neither was changed nor is of another save."""
    try:
        text, weights = read_bytes(path / CONFIG), read_bytes(path / WEIGHTS)
        config = parse_json(text)
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); was a method saved here?") from None
    except Unreadable as error:
        raise MethodError(f"{path / CONFIG}: cannot be read ({error}); save the method again") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise MethodError(
            f"{path / CONFIG}: not a method of format {FORMAT}, which this version reads: fit it again, and save it"
        )
    if sealed_with(text) is None:
        raise MethodError(f"{path / CONFIG}: damaged or edited, its checksum does not fit; save the method again")
    if config.get("weights") != checksum(weights):
        raise MethodError(f"{path / WEIGHTS}: damaged, or of another save than {CONFIG}; save the method again")
    return config, weights


def _components(method: Method) -> dict[str, Method]:
    return {} if method.components is None else method.components._fitted(method)


def _whole(method: Method) -> Iterator[Method]:
    """Yield the method, and the methods it is made of."""
    yield method
    for part in _components(method).values():
        yield from _whole(part)


class _Options(NamedTuple):
    """Arguments of ``load_method`` that the files do not hold."""

    kind: type[Method] | None
    backbone: BackboneFactory | None
    device: str


def _described(method: Method, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Describe a method as JSON; its tensors, and those of its components, are added to ``tensors``."""
    tensors.update({prefix + name: tensor for name, tensor in method._state().items()})
    tensors.update({f"{prefix}{_RANGE}{name}": bound for name, bound in method.feature_range_._asdict().items()})
    if method.calibration_ is not None:
        tensors.update({f"{prefix}{_CALIBRATION}{name}": t for name, t in method.calibration_.state().items()})
    components = method.components.parameter if method.components else None  # stored as methods
    config = method.get_params(deep=False)
    described = {
        "method": method_path(type(method)),
        "config": {
            name: None if callable(value) else value
            for name, value in config.items()
            if name not in (components, "device")
        },
        "fingerprint": method.fingerprint,
        "protocol": method.protocol,
        "num_features": method.num_features,
        "feature_names": method.feature_names,
        "class_names": method.class_names,
    }
    if method.history_:
        described["history"] = method.history_
    parts = {name: _described(part, f"{prefix}{name}.", tensors) for name, part in _components(method).items()}
    return {**described, "parts": parts} if parts else described


def _made(config: Mapping[str, Any], prefix: str, tensors: Mapping[str, Tensor], choice: _Options) -> Method:
    """Restore what ``_described`` gave."""
    options = dict(config["config"])
    if "backbone" in options and options["backbone"] is None:
        if choice.backbone is None:
            raise MethodError(
                "this method's backbone was made by a function: give it again, load_method(.., backbone=)"
            )
        options["backbone"] = choice.backbone
    kind = known_method(config["method"], choice.kind)
    if any(field.name == "device" for field in fields(kind)):
        options["device"] = choice.device
    method = kind(**options)
    method.protocol = config["protocol"]
    method.graph_, method.train_nodes_, method.fingerprint = None, None, str(config["fingerprint"])
    method.num_features, method.class_names = int(config["num_features"]), tuple(config["class_names"])
    method.feature_names = _names(config.get("feature_names"), method.num_features)
    parts = config.get("parts", {})
    state = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    method.feature_range_ = FeatureRange(state.pop(f"{_RANGE}low"), state.pop(f"{_RANGE}high"))
    for bound in method.feature_range_:
        if bound.shape != (method.num_features,) or not bound.is_floating_point():
            raise ValueError(f"the range of {method.num_features} features is stored as {list(bound.shape)}")
    names = [name for name in state if name.startswith(_CALIBRATION)]
    if names:
        scored = {name.removeprefix(_CALIBRATION): state.pop(name) for name in names}
        method.calibration_ = CalibrationNodes.from_state(scored)
    if method.components is not None:
        made = {name: _made(part, f"{prefix}{name}.", tensors, choice) for name, part in parts.items()}
        method.components._restore(method, made)
    inner = tuple(f"{name}." for name in parts)
    method._load_state({name: tensor for name, tensor in state.items() if not name.startswith(inner)})
    method.history_ = [Epoch(*line) for line in config.get("history", ())]
    return method


def _names(names: Any, count: int) -> tuple[str, ...] | None:
    """Check names of features; None if the graph of training had none."""
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise ValueError(f"feature_names are not {count} names")
    return tuple(names)
