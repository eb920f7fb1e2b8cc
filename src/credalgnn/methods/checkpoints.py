"""States of trainings on disk, so that a fit that was stopped goes on: safetensors, and no code in them."""

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

EVERY = 30.0  # seconds of a training between two states on the disk
COMPUTING = ("conformal", "graphs", "methods", "nn", "runtime", "sets")  # packages whose code a training depends on
BRIEF = 2.0  # seconds: a training that took no longer is not kept when it ends
_KEPT = re.compile(r"[0-9a-f]{32}\.safetensors|\.[0-9a-f]{32}\.safetensors\.[0-9]+\.part")  # whole, or of a kill


class CheckpointWarning(UserWarning):
    """The state of a training cannot be kept, or what was kept cannot be used."""


class Checkpoint:
    """File with the state of one training (``nn.training.CheckpointStore``), written now and then and at the end.

    What cannot be written, as the disk is full, or read, as it is damaged, is warned of, and training goes on without.

    Args:
        path: The file.
        description: What is trained.
        silent: Do not say that a training goes on.
    """

    def __init__(self, path: Path, description: str, silent: bool = False) -> None:
        self.path, self.description, self.silent = path, description, silent
        self._begun = self._kept = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """What was kept last, if anything."""
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
            how = "was trained already" if ended else f"goes on from epoch {epoch}, where it was stopped"
            print(f"{self.description}: {how}", file=sys.stderr, flush=True)
        return state

    def is_due(self, ended: bool = False) -> bool:
        """Whether a state is to be kept now.

        Args:
            ended: Whether the training has ended with it.
        """
        now = time.monotonic()
        return now >= self._kept + EVERY or (ended and now >= self._begun + BRIEF)

    def save(self, state: Callable[[], Mapping[str, Any]], ended: bool) -> None:
        """Keep a state, if it is time.

        Args:
            state: Makes it.
            ended: Whether the training has ended with it.
        """
        if self.is_due(ended):
            self.write(packed(state()))

    def write(self, content: bytes) -> None:
        """Keep what ``packed`` made of a state.

        Args:
            content: All of it.
        """
        try:
            write(self.path, content)
        except OSError as error:
            warn_caller(
                f"{self.path}: cannot be written ({error.strerror or error}): what is trained now would be lost with "
                "this process",
                CheckpointWarning,
            )
        self._kept = time.monotonic()


def holds_checkpoints(folder: Path) -> bool:
    """Whether there is nothing but states of trainings in a folder.

    Args:
        folder: The folder.
    """
    return folder.is_dir() and all(_KEPT.fullmatch(path.name) for path in folder.iterdir())


def remove_checkpoints(folder: Path) -> None:
    """Remove the states of trainings from a folder, and the folder if nothing else is in it.

    Args:
        folder: The folder; it need not be there.
    """
    with suppress(OSError):  # they are in nobody's way
        for path in folder.iterdir():
            if _KEPT.fullmatch(path.name):
                path.unlink()
        folder.rmdir()


def packed(state: Any) -> bytes:
    """Numbers, texts, tensors, lists and mappings of them as the bytes of a safetensors file, with a checksum.

    Args:
        state: What to keep; tuples become lists.
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
    """The inverse of ``packed``.

    Args:
        content: What it gave.
    """
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
    """Where the state of a training is kept: a file whose name is another one if anything it depends on is; or nowhere.

    How many processes train is not part of it: others may go on. Of a class or function that is not of this package its
    whole module counts, but not what that imports.

    Args:
        method: Has the hyper-parameters.
        module: What is trained, with its first weights.
        training: What to learn from.
        context: Of the call.
        batch_size: Training nodes of a mini-batch; None: the whole graph at once.
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
        warn_caller(f"{description}: its code is in no file, so that its training cannot be kept", CheckpointWarning)
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
