"""Parsers of commands made from signatures and docstrings, which are read from source: nothing heavy is imported."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from ..runtime.names import suggestion
from ..runtime.texts import one_line
from .common import class_name, count, duration, flag_of, memory_size, rate

PACKAGE = Path(__file__).parents[1]
WIDTH = 80  # columns of a description
REQUIRED = object()
SHORT = {"tasks": "-d", "methods": "-m", "method": "-m"}
COLUMNS = ("label", "id", "features", "source", "target", "weight", "split")
CONVERTERS: dict[str, tuple[Callable[[str], Any], str]] = {
    **dict.fromkeys(("seeds", "trials", "jobs", "workers", "tune"), (count, "N")),
    **dict.fromkeys(("seed", "split_seed"), (int, "K")),
    **dict.fromkeys(("false_alarms", "coverage"), (rate, "RATE")),
    **dict.fromkeys(("mirror", "data_root", "tuned"), (Path, "DIR")),
    **dict.fromkeys(COLUMNS, (str, "COLUMN")),
    **dict.fromkeys(("nodes", "edges", "context"), (Path, "FILE")), "graph": (Path, "PATH"), "model": (Path, "MODEL"),
    "time_limit": (duration, "TIME"), "memory": (memory_size, "SIZE"), "ood_classes": (class_name, "CLASS"),
    "settings": (str, "NAME=VALUE"), "address": (str, "HOST:PORT"), "as_published": (str, "CHOICE"),
}  # fmt: skip
TEXTS = {  # of options that several commands have
    "model": "folder of the model (credalgnn fit)",
    "method": "of a model with a method of your own: package.module:Class",
    "nodes": "table with a row per node: .csv, .tsv, .parquet; also .gz",
    "edges": "table with a row per edge, with the ids of its two nodes",
    "graph": "instead of tables: a packed graph (credalgnn pack), a folder with nodes and edges files, an .npz of "
    "Graph.save, or tensors of a PyG graph (.pt, .safetensors)",
    "context": "tables of earlier nodes and edges that new nodes may be linked to, as those of fit",
    "false_alarms": "flag a node of a known class as unfamiliar with at most this probability (default: 0.05)",
    "coverage": "keep the true class among those in question with at least this probability (default: 0.95)",
    "memory": "memory budget, as 4GiB or 500MB (default: what is available)",
    "engine": "ray: an existing cluster",
    "address": "address of the Ray cluster (default: the one that Ray finds)",
    "source": "column of edges with the ids of their sources",
    "target": "column of edges with the ids of their targets",
    "weight": "column of edges (default: weight, if there is one)",
    "delimiter": "delimiter of text files (default: detected)",
}
ANY_NUMBER = ("ood_classes", "as_published")  # of values, none included


@dataclass(frozen=True)
class Argument:
    """Argument of a function: annotation as text, default, and the text of its `Args:` entry."""

    name: str
    annotation: str
    default: Any
    text: str
    positional: bool
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signature:
    """Arguments of a function, its docstring up to `Args:`, and the entries there."""

    arguments: list[Argument]
    description: str
    texts: dict[str, str]


@dataclass(frozen=True)
class Command:
    """Command: a function in `cli`, and functions of the package whose arguments are options too.

    Attributes:
        handler: ``module:function`` in `cli`.
        apis: Functions of the package, ``path.py:function``, whose arguments are options too.
        skip: Arguments of the function that are no options.
        required: Arguments with defaults that must be given.
        names: Metavars that differ from what names and annotations imply.
        stopped: State after Ctrl-C, or the handler that describes it.
        example: Example of a call.
        prints: Whether the result goes to stdout.
    """

    handler: str
    apis: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    example: str = ""
    prints: bool = False

    def signatures(self) -> Iterator[Signature]:
        """Signatures of the handler and of the function of the package."""
        module, _, name = self.handler.partition(":")
        yield read_signature(f"cli/{module}.py", name)
        for api in self.apis:
            yield read_signature(*api.split(":"))

    @property
    def has_texts(self) -> bool:
        """True if `TEXTS` replaces texts of functions of the package."""
        return "cli/model.py:tables" in self.apis

    @property
    def summary(self) -> str:
        """First line of the docstring: the handler's, else the one of the function of the package."""
        return self.description.partition("\n")[0].rstrip(".")

    @property
    def description(self) -> str:
        return next(each.description for each in self.signatures() if each.description)


@cache
def _module(path: str) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


def read_signature(path: str, name: str) -> Signature:
    """Read the signature and the docstring of a function, or ``Class.method``, from the source of the package."""
    node: Any = _module(path)
    for part in name.split("."):
        node = next(each for each in node.body if getattr(each, "name", "") == part)
    body, _, entries = (ast.get_docstring(node) or "").partition("\nArgs:\n")
    entries = re.split(r"\n(?:Returns|Raises|Example|Yields):", entries)[0]
    texts = {m[1]: " ".join(m[2].split()) for m in re.finditer(r"^    (\w+): (.*(?:\n {8}.*)*)", entries, re.M)}
    arguments = []
    defaults = [REQUIRED] * (len(node.args.args) - len(node.args.defaults)) + node.args.defaults
    pairs = [
        *zip(node.args.args, defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    for each, default in pairs:
        annotation = ast.unparse(each.annotation) if each.annotation else ""
        value = default if default is REQUIRED else REQUIRED if default is None else ast.literal_eval(default)
        text, choices = texts.get(each.arg, ""), _literals(path, annotation)
        arguments.append(Argument(each.arg, annotation, value, text, each in node.args.args, choices))
    return Signature(arguments, re.split(r"\n(?:Returns|Raises|Example):", body)[0].strip(), texts)


def _literals(path: str, annotation: str) -> tuple[str, ...]:
    """Values of a ``Literal``, also behind an alias in the module or in one that it imports from."""
    if annotation.startswith("Literal["):
        return tuple(value for value in ast.literal_eval(f"[{annotation[8:-1]}]") if value is not None)
    if not annotation.isidentifier():
        return ()
    for node in _module(path).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == annotation and node.value is not None:
            return _literals(path, ast.unparse(node.value))
        if isinstance(node, ast.ImportFrom) and node.level and annotation in [each.name for each in node.names]:
            folder = (PACKAGE / path).parents[node.level - 1] / (node.module or "").replace(".", "/")
            if folder.with_suffix(".py").exists():
                return _literals(str(folder.with_suffix(".py").relative_to(PACKAGE)), annotation)
    return ()


class Parser(argparse.ArgumentParser):
    """Parser whose options have one spelling (``--seed`` is not ``--seeds``) and suggest the nearest name."""

    RAW = argparse.RawDescriptionHelpFormatter

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        args = sys.argv[1:] if args is None else args
        for argument in args:  # before argparse complains of what is missing because of a typo
            option = argument.partition("=")[0]
            if argument == "--":
                break
            if option.startswith("--") and option not in self._option_string_actions:
                options = [name for name in self._option_string_actions if name.startswith("--")]
                self.error(f"unknown option {option}: {suggestion(option, options)}")
        result, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return result, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}: {suggestion(str(value), action.choices)}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"credalgnn: {one_line(message)} (see {self.prog} --help)\n")


def parser_of(name: str, command: Command) -> Parser:
    """Make the parser of a command; what is not given is not in its result, so that functions keep their defaults."""
    parser = Parser(
        prog=f"credalgnn {name}",
        description="\n\n".join(
            textwrap.fill(_plain(" ".join(part.split())), WIDTH) for part in command.description.split("\n\n")
        ),
        epilog=f"example:\n  {command.example}" if command.example else None,
        formatter_class=Parser.RAW,
        argument_default=argparse.SUPPRESS,
    )
    done = {*command.skip, "self", "progress"}
    handler, *others = command.signatures()
    for signature in (handler, *others):
        for argument in signature.arguments:
            if argument.name not in done:
                done.add(argument.name)
                text = handler.texts.get(argument.name) or (TEXTS.get(argument.name) if command.has_texts else None)
                text = text or argument.text.removeprefix("See ``Graph.from_tables``.") or TEXTS.get(argument.name, "")
                _add(parser, replace(argument, text=text), command, argument.positional and signature is handler)
    return parser


def _add(parser: Parser, argument: Argument, command: Command, positional: bool) -> None:
    name, default, text = argument.name, argument.default, _plain(argument.text)
    if default not in (REQUIRED, None, False, "all", "") and "default" not in text:
        text = f"{text.removesuffix('.')} (default: {default})"
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    options: dict[str, Any] = {"help": text.removesuffix(".").replace("%", "%%")}
    if default is False:
        parser.add_argument(flag_of(name), action="store_true", **options)
        return
    convert, metavar = CONVERTERS.get(name, (str, name.upper()))
    if "Path" in argument.annotation or "Place" in argument.annotation:
        convert, metavar = Path, CONVERTERS.get(name, (Path, "DIR"))[1]
    options |= {"type": convert, "metavar": command.names.get(name, metavar)}
    if argument.choices:
        options |= {"choices": argument.choices, "metavar": None}
    if re.search(r"\b(Sequence|list)\[", argument.annotation) or name == "settings":
        options["nargs"] = "*" if name in ANY_NUMBER else "+"
        if name == "settings":
            options["action"] = "extend"
    if positional:
        parser.add_argument(name, **options)
        return
    flags = [SHORT[name], flag_of(name)] if name in SHORT else [flag_of(name)]
    parser.add_argument(*flags, dest=name, required=default is REQUIRED or name in command.required, **options)


def _plain(text: str) -> str:
    """Text of a docstring for a terminal: without markup, and with None as the default."""
    text = re.sub(r"\bNone: ", "default: ", text)
    return re.sub(r"``\"?([^`]*?)\"?``", r"\1", text).replace("same call", "same command")
