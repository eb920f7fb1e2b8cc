"""The folder of a model: safetensors, JSON and text, written so that it is complete or not a model."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors

from .._version import __version__
from ..methods import Method, MethodError, load_method
from ..methods.checkpoints import holds_checkpoints
from ..methods.known_nodes import KnownNodes
from ..methods.storage import CONFIG, WEIGHTS
from ..runtime.files import checksum, find_link, sealed_with, to_json, write
from ..runtime.reading import parse_json, read_bytes, read_tensors
from .reading import TableReader
from .summary import card, summary_text

if TYPE_CHECKING:
    from .model import Model

FORMAT = 3
MODEL, PARTS, CARD, PAGE, TUNING = "model.json", "parts.safetensors", "README.md", "report.html", "tuning"
SUMMED = (WEIGHTS, CONFIG, PARTS)  # the checksums of these are in model.json
CHECKPOINTS = "checkpoints"  # of what a fit trains, until it is finished
DAMAGED = "damaged"  # where ``credalgnn check --repair`` puts what cannot be used
_PART = re.compile(rf"\.({'|'.join(map(re.escape, (*SUMMED, MODEL, CARD, PAGE)))})\.\d+\.part")  # of a killed process


def check_free(folder: Path) -> None:
    """Refuse a place that cannot be a folder, or that holds anything but what a stopped ``fit`` leaves behind.

    Args:
        folder: Where a model shall be.
    """
    if (folder / MODEL).exists():
        raise MethodError(f"{folder} holds a model already: name another folder, or remove this one")
    if folder.exists() and not folder.is_dir():
        raise MethodError(f"{folder} is a file: name a folder for the model")
    place = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not place.is_dir():
        raise MethodError(f"{place} is a file, so {folder} cannot be made: name another folder")
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".credalgnn-", dir=place))  # permissions do not say it of all file systems
    except OSError as error:
        raise MethodError(f"{place}: nothing can be written there ({error.strerror}); name another folder") from None
    if (link := find_link(folder)) is not None:
        raise MethodError(f"{link}: a link, which would lead writes elsewhere; remove it, or name another folder")
    ours = {*SUMMED, PAGE, TUNING, DAMAGED}
    if holds_checkpoints(folder / CHECKPOINTS):
        ours.add(CHECKPOINTS)
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if PARTS in there:
        ours.add(CARD)  # without the parts, a README.md is somebody else's
    other = sorted(name for name in there - ours if not _PART.fullmatch(name))
    if other:
        raise MethodError(f"{folder} holds other files ({other[0]}): name a new or an empty folder for the model")


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
    try:
        for path in folder.glob(".*.part"):
            if _PART.fullmatch(path.name):
                path.unlink()
        model.method.save(folder)
        write(folder / PARTS, save_tensors(tensors))
        config["sums"] = {name: checksum((folder / name).read_bytes()) for name in SUMMED}
        tables = None if model.reader is None else model.reader.columns
        write(folder / CARD, card(model.summary, config, tables, model.method.is_credal).encode())
        write(folder / MODEL, to_json(config))
    except OSError as error:
        raise MethodError(f"{folder}: cannot be written ({error.strerror}); choose another place") from None


def read_config(folder: Path) -> dict[str, Any]:
    """What ``model.json`` says, if neither it nor the files it vouches for were changed.

    Args:
        folder: The folder of a model.
    """
    place = folder / MODEL
    again = "copy the folder again, or fit again"
    if not folder.is_dir():
        raise MethodError(f"{folder}: no such folder; credalgnn fit makes a model")
    if not place.is_file():
        raise MethodError(f"{folder}: no model in it, or one whose fit was not finished; credalgnn fit makes one")
    try:
        text = read_bytes(place)
        config = parse_json(text)
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise MethodError(f"{place}: not a model of format {FORMAT}, which this version reads")
        if sealed_with(text) is None:
            raise MethodError(f"{place}: damaged or edited, its checksum does not fit; {again}")
        for name in SUMMED:
            if checksum(read_bytes(folder / name)) != config["sums"][name]:
                raise MethodError(f"{folder / name}: damaged, or of another model; {again}")
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); {again}") from None
    except MethodError:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise MethodError(f"{place}: damaged ({reason}); {again}") from None
    return config


def load(folder: Path, method: type[Method] | str | None = None) -> Model:
    """See ``load_model``.

    Args:
        folder: The folder.
        method: The class of a method from outside, if need be.
    """
    from .model import Model

    config = read_config(folder)
    place = folder / MODEL
    try:
        tensors = read_tensors(folder / PARTS)[0]
        parts = {
            name: KnownNodes(
                bytes(tensors[f"{name}.content"].tolist()).hex(), tensors[f"{name}.nodes"], tensors[f"{name}.codes"]
            )
            for name in config["parts"]
        }
        reader = None if config["tables"] is None else TableReader.from_json(config["tables"])
        summary = config["summary"]
        summary_text(summary)  # it has all that is told of a model
    except OSError as error:
        raise MethodError(f"{error.filename}: cannot be read ({error.strerror}); copy the folder again") from None
    except MethodError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as e:
        reason = f"{type(e).__name__}: {' '.join(str(e).split())[:100]}"
        raise MethodError(f"{place}: damaged ({reason}); copy the folder again, or fit again") from None
    return Model(load_method(folder, method=method), parts, reader, summary)
