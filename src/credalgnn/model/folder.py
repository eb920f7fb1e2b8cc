"""The folder of a model: safetensors, JSON and text, written so that it is complete or not a model."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from .._files import to_json, write
from .._version import __version__
from ..methods import Method, MethodError, load_method
from ..methods.known_nodes import KnownNodes
from .card import card
from .reading import TableReader

if TYPE_CHECKING:
    from .model import Model

FORMAT = 1
MODEL, PARTS, CARD, PAGE = "model.json", "parts.safetensors", "README.md", "report.html"


def check_free(folder: Path) -> None:
    """Refuse a place that holds a model already, or that cannot be a folder.

    Args:
        folder: Where a model shall be.
    """
    if (folder / MODEL).exists():
        raise MethodError(f"{folder} holds a model already: name another folder, or remove this one")
    if folder.exists() and not folder.is_dir():
        raise MethodError(f"{folder} is a file: name a folder for the model")


def save(model: Model, folder: Path) -> None:
    """See ``Model.save``; ``model.json`` is written last, so that what a kill leaves behind is no model.

    Args:
        model: The model.
        folder: Where to.
    """
    check_free(folder)
    tensors = {}
    for name, known in model.parts.items():
        tensors[f"{name}.content"] = torch.tensor(list(bytes.fromhex(known.content)), dtype=torch.uint8)
        tensors[f"{name}.nodes"], tensors[f"{name}.codes"] = known.nodes.clone(), known.codes.clone()
    versions = {"credalgnn": __version__, "python": platform.python_version(), "torch": torch.__version__}
    config: dict[str, Any] = {
        "format": FORMAT,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "numpy": np.__version__},
        "parts": list(model.parts),
        "tables": None if model.reader is None else model.reader.to_json(),
        "summary": dict(model.summary),
    }
    model.method.save(folder)
    try:
        write(folder / PARTS, save_tensors(tensors))
        write(folder / CARD, card(model, config).encode())
        write(folder / MODEL, to_json(config))
    except OSError as error:
        raise MethodError(f"{folder}: cannot be written ({error.strerror}); choose another place") from None


def load(folder: Path, method: type[Method] | str | None = None) -> Model:
    """See ``load_model``.

    Args:
        folder: The folder.
        method: The class of a method from outside, if need be.
    """
    from .model import Model

    place = folder / MODEL
    if not folder.is_dir():
        raise MethodError(f"{folder}: no such folder; credalgnn fit makes a model")
    if not place.is_file():
        raise MethodError(f"{folder}: no model in it, or one whose fit was not finished; credalgnn fit makes one")
    try:
        config = json.loads(place.read_bytes())
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise MethodError(f"{place}: not a model of format {FORMAT}, which this version reads")
        tensors = load_tensors((folder / PARTS).read_bytes())
        parts = {
            name: KnownNodes(
                bytes(tensors[f"{name}.content"].tolist()).hex(), tensors[f"{name}.nodes"], tensors[f"{name}.codes"]
            )
            for name in config["parts"]
        }
        reader = None if config["tables"] is None else TableReader.from_json(config["tables"])
        summary = config["summary"]
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except MethodError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise MethodError(f"{folder}: damaged ({error}); fit the model again") from None
    return Model(load_method(folder, method=method), parts, reader, summary)
