"""What to run, as plain values: a method, a task, a seed and every hyper-parameter spelled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ..methods import Method, MethodError, find_method, method_path
from ..methods.parameters import IF_SET
from ..methods.training_data import EvalProtocol
from ..records.schema import SETTINGS
from ..runtime.names import suggestion


@dataclass(frozen=True)
class Run:
    """What to fit, the same in every process and on every machine.

    Attributes:
        dataset: The task's name.
        method: The method's name.
        seed: Of the run.
        protocol: What may be looked at.
        split_seed: Of the task.
        config: The method's hyper-parameters without its seed.
        components: Those, with their seeds, of the models that the method stands on, or of the method itself if others
            can stand on it: what is shared between runs.
        inductive: The task's.
        path: What ``find_method`` finds the method by, where its name is not enough.
    """

    dataset: str
    method: str
    seed: int
    protocol: EvalProtocol
    split_seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    components: tuple[dict[str, Any], ...] = ()
    inductive: bool = False
    path: str | None = None

    @property
    def kind(self) -> type[Method]:
        """The method's class."""
        return find_method(self.path or self.method)

    @property
    def setting(self) -> str:
        return SETTINGS[self.inductive]

    @property
    def label(self) -> str:
        """For people: what is run on what."""
        return f"{self.dataset} {self.method} seed {self.seed}"

    @property
    def described(self) -> dict[str, Any]:
        """The configuration as a record keeps it; components that differ in their seeds only are written once."""
        declared, own = self.kind.components, _recorded(self.kind, self.config)
        if declared is None:
            return own
        plain = [_recorded(declared.kind, config) for config in self.components]
        same = all(config == plain[0] for config in plain)
        return {**own, **({declared.kind.name: plain[0]} if same else {declared.parameter: plain})}


def plan(
    dataset: str,
    method: str,
    seed: int,
    protocol: EvalProtocol = "sealed",
    split_seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    components: Sequence[Mapping[str, Any]] = ({},),
    inductive: bool = False,
) -> Run:
    """A run with every hyper-parameter spelled out; refuses what cannot work, before anything is run.

    What is not set is the default, and early stopping follows the protocol.

    Args:
        dataset: The task's name.
        method: A name or an import path.
        seed: Of the run.
        protocol: What may be looked at.
        split_seed: Of the task.
        settings: Hyper-parameters of the method.
        components: Hyper-parameters of the models it stands on, if any. One set of them serves all members of an
            ensemble; with several of them each is a member.
        inductive: The task's.
    """
    if inductive and protocol == "paper":
        raise MethodError("the paper's protocol is transductive: choose the sealed one for the inductive setting")
    kind = find_method(method)
    config = complete(kind, settings or {}, protocol)
    shared: tuple[dict[str, Any], ...] = ()
    declared = kind.components
    if declared is not None:
        models = [complete(declared.kind, each, protocol) for each in components]
        if len(models) > 1 and declared.size:
            config[declared.size] = len(models)
        seeds = declared.seeds(config, seed)
        models = models if len(models) > 1 else models * len(seeds)
        shared = tuple({**model, "seed": own} for model, own in zip(models, seeds, strict=True))
    elif kind.is_shared:
        shared = ({**config, "seed": seed},)
    path = method_path(kind)
    return Run(
        dataset, kind.name, seed, protocol, split_seed, config, shared, inductive, None if path == kind.name else path
    )


def _recorded(kind: type[Method], config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the seed, and without what is only recorded where it is set.

    Records that are older than such a hyper-parameter then stay comparable with those that do not use it.
    """
    if_set = {each.name for each in fields(kind) if each.metadata.get(IF_SET)}
    return {name: value for name, value in config.items() if name != "seed" and not (name in if_set and value is None)}


def options(kind: type[Method]) -> dict[str, Any]:
    """A method's hyper-parameters with their defaults, without its seed and what it stands on.

    Args:
        kind: The method's class.
    """
    left_out = ("seed", kind.components.parameter if kind.components else None)
    defaults: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in left_out:
            continue
        if each.default is MISSING and each.default_factory is MISSING:
            raise MethodError(f"{kind.name}: hyper-parameter {each.name!r} needs a default")
        defaults[each.name] = each.default if each.default_factory is MISSING else each.default_factory()
    return defaults


def complete(kind: type[Method], settings: Mapping[str, Any], protocol: EvalProtocol) -> dict[str, Any]:
    """All hyper-parameters of a method: what is set, and else the protocol's defaults; checked.

    Args:
        kind: The method's class.
        settings: What is set.
        protocol: What may be looked at.
    """
    config = {**options(kind), **kind.protocol_defaults.get(protocol, {})}
    unknown = [name for name in settings if name not in config]
    if unknown:
        raise MethodError(f"{kind.name} has no hyper-parameter {unknown[0]!r}; {suggestion(unknown[0], config)}")
    config.update(settings)
    if config.get("monitor") == "ood_auroc" and protocol == "sealed":
        raise MethodError("monitor 'ood_auroc' looks at OOD validation nodes, which the sealed protocol forbids")
    checked = kind(**config)
    return {name: getattr(checked, name) for name in config}
