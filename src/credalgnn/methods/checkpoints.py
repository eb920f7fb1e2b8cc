"""Training states on disk, so that an interrupted fit continues: safetensors, and no code in them."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from ..runtime.files import BLANK, seal, sealed_with, write
from ..runtime.reading import Unreadable, parse_json, parse_tensors, read_bytes, texts_about
from ..runtime.texts import one_line
from ..runtime.warn import warn_caller

if TYPE_CHECKING:
    from ..nn import Classifier
    from ..runtime.context import Context
    from .network import Network
    from .training_data import TrainingData

COMPUTING = ("conformal", "graphs", "methods", "nn", "runtime", "sets")  # packages whose code a training depends on
EVERY = 30.0  # seconds between two states of a training on disk
BRIEF = 2.0  # seconds: a training that took no longer is not saved when it ends
_KEPT = re.compile(r"[0-9a-f]{32}\.safetensors|\.[0-9a-f]{32}\.safetensors\.[0-9]+\.part")  # whole, or of a kill


class CheckpointWarning(UserWarning):
    """A training state cannot be saved or used."""


class Checkpoint:
    """File with the state of one training (``nn.training.CheckpointStore``), written now and then and at the end.

    A full disk or a damaged file leads to a warning, and training continues without.

    Args:
        path: The file.
        description: Name of the training in messages.
        silent: Do not report that a training continues.
    """

    def __init__(self, path: Path, description: str, silent: bool = False) -> None:
        self.path, self.description, self.silent = path, description, silent
        self._begun = self._kept = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, if any."""
        try:
            content = read_bytes(self.path)
            if sealed_with(content) is None:
                raise Unreadable("its checksum does not fit")
            state: dict[str, Any] = unpacked(content)
            epoch, ended = state["curve"][-1][0], bool(state["ended"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (Unreadable, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            warn_caller(
                f"{self.path}: cannot be used ({one_line(str(error)):.100}): {self.description} is trained anew",
                CheckpointWarning,
            )
            return None
        if not self.silent:
            how = "was trained already" if ended else f"continues from epoch {epoch}, where it was stopped"
            print(f"{self.description}: {how}", file=sys.stderr, flush=True)
        return state

    def is_due(self, ended: bool = False) -> bool:
        """Return whether a state should be saved now, the last one of its training or another."""
        now = time.monotonic()
        return now >= self._kept + EVERY or (ended and now >= self._begun + BRIEF)

    def save(self, state: Callable[[], Mapping[str, Any]], ended: bool) -> None:
        """Save a state, which is made only if it is time for it."""
        if self.is_due(ended):
            self.write(packed(state()))

    def write(self, content: bytes) -> None:
        """Save a state as ``packed`` bytes."""
        try:
            write(self.path, content)
        except OSError as error:
            warn_caller(
                f"{self.path}: cannot be written ({error.strerror or error}): if this process is stopped, its training "
                "starts again",
                CheckpointWarning,
            )
        self._kept = time.monotonic()


def holds_checkpoints(folder: Path) -> bool:
    """Return whether a folder holds training states and nothing else."""
    return folder.is_dir() and all(_KEPT.fullmatch(path.name) for path in folder.iterdir())


def remove_checkpoints(folder: Path) -> None:
    """Remove the training states in a folder, and the folder if nothing else is in it; it need not exist."""
    with suppress(OSError):  # leftovers do no harm
        for path in folder.iterdir():
            if _KEPT.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


def packed(state: Any) -> bytes:
    """Return numbers, texts, tensors, lists and mappings of them as a safetensors file with a checksum.

    Tuples become lists.
    """
    tensors: dict[str, Tensor] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
            return {"tensor": name}
        if isinstance(value, Mapping):
            return {"entries": [[plain(key), plain(each)] for key, each in value.items()]}
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value

    text = json.dumps(plain(state))
    return seal(save_tensors(tensors, {"state": text, "checksum": BLANK}))


def unpacked(content: bytes) -> Any:
    """Return the state of ``packed`` bytes."""
    tensors = parse_tensors(content)

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return [made(each) for each in value]
        if not isinstance(value, dict):
            return value
        return (
            tensors[value["tensor"]] if "tensor" in value else {made(key): made(each) for key, each in value["entries"]}
        )

    return made(parse_json(texts_about(content)["state"].encode()))


def checkpoint_of(
    method: Network,
    module: Classifier,
    training: TrainingData,
    context: Context,
    batch_size: int | None,
) -> Checkpoint | None:
    """Return the checkpoint of a training, whose name depends on everything that its result depends on; None: nowhere.

    The number of processes is not part of it. Code counts without its comments and docstrings: of this package the
    modules that compute, of classes and functions outside of it their whole module, but no imports.

    Args:
        method: Source of the hyper-parameters.
        module: Network with its initial weights.
        training: Training data.
        context: Context of the call.
        batch_size: Training nodes of a mini-batch; None: full batches.
    """
    if context.checkpoints is None:
        return None
    description = f"{method.name} seed {method.seed}"
    view, kind = training.view, type(method)
    params = method.get_params(deep=False)
    functions = [value for value in params.values() if callable(value)]
    try:
        code = [_source(each) for each in (*kind.__mro__, *dict.fromkeys(map(type, module.modules())), *functions)]
    except (OSError, TypeError, KeyError):
        warn_caller(f"{description}: its code is in no file, so that its training cannot be saved", CheckpointWarning)
        return None
    described = (
        package_code(), kind.__module__, kind.__qualname__, code, repr(module), batch_size, view.fingerprint,
        {name: _source(value) if callable(value) else value for name, value in params.items()},
        view.graph.content, view.val_graph.content, None if training.validation is None else "validation",
    )  # fmt: skip
    digest = hashlib.blake2b(repr(described).encode(), digest_size=16)
    for nodes, labels in ((view.train, view.graph.labels), (view.val, view.val_graph.labels)):
        digest.update(nodes.numpy().tobytes() + b";" + labels[nodes].numpy().tobytes() + b";")
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)};".encode())
        digest.update(tensor.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return Checkpoint(context.checkpoints / f"{digest.hexdigest()}.safetensors", description, context.progress is False)


def _source(code: Any) -> str:
    """Identify a class or function: by its name in known packages, elsewhere by the code of its module."""
    name, module = getattr(code, "__qualname__", ""), str(getattr(code, "__module__", ""))
    if module.partition(".")[0] in ("builtins", "abc", "torch", "torch_geometric", "credalgnn"):
        return f"{module}.{name}"
    if "<" in name or not name or hasattr(code, "__self__"):  # closures and bound methods carry state
        raise TypeError
    return f"{module}.{name}: {code_digest(inspect.getsource(sys.modules[module]))}"


@cache
def package_code(root: Path = Path(__file__).parents[1]) -> str:
    """Hash the code of the packages that compute."""
    paths = [path for package in COMPUTING for path in sorted((root / package).rglob("*.py"))]
    return hashlib.blake2b(
        "".join(code_digest(path.read_text(encoding="utf-8")) for path in paths).encode()
    ).hexdigest()


def code_digest(source: str) -> str:
    """Hash the code of a module; comments, docstrings and layout do not count."""
    digest = hashlib.blake2b(digest_size=16)

    def update(code: CodeType) -> None:
        digest.update(code.co_code + code.co_exceptiontable)
        digest.update(repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars)).encode())
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                update(constant)
            else:  # the order in a set changes with the process
                ordered = sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
                digest.update(f"{ordered};".encode())

    update(compile(source, "", "exec", dont_inherit=True, optimize=2))
    return digest.hexdigest()
