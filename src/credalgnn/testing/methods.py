"""Contract of methods."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from ..experiments.execute import ModelCache, execute
from ..experiments.plan import plan
from ..graphs import Graph, Task, csbm
from ..methods import (
    Components,
    Method,
    MethodError,
    Prediction,
    Uniform,
    check_declared,
    load_method,
    method_path,
)
from ..methods.base import parts_of
from ..methods.parameters import has_seed
from ..methods.registry import complete, options, parameters_of
from ..methods.training_data import EvalProtocol
from ..metrics import METRICS
from ..nn.training import Epoch
from ..records.schema import wrong_field
from .datasets import fail, sandbox

DATACLASS = "decorate the class with @dataclass(kw_only=True, eq=False)"
THREADS = 4
INTERRUPTS = (0.4, 0.8, 1.0)  # of the calls of a fit
PROTOCOLS: tuple[EvalProtocol, ...] = get_args(EvalProtocol)


def check_method(method: type[Method] | Method, task: Task | None = None) -> None:
    """Check that a method meets the contract of the package; return silently if it does.

    The method is fitted about fifteen times, so a template with few epochs is quicker than a class with its defaults.

    Args:
        method: Method class, or a template whose hyper-parameters are used.
        task: Task to fit on; by default a generated graph of 120 nodes with one of four classes left out.

    Raises:
        AssertionError: Names the first problem and its remedy.

    Example:
        >>> check_method(Vanilla(epochs=5))
    """
    kind = method if isinstance(method, type) else type(method)
    check_declared(kind, kind.__qualname__)
    _check_class(kind)
    template = _constructed(kind) if isinstance(method, type) else method.clone()
    if task is None:
        task = Task.leave_out(csbm(nodes=120, classes=4, features=8), [0], name="check")
    _check_parameters(template)
    _check_components(kind)
    _check_search(kind, task)
    with sandbox():
        _check_unfitted(template)
        fitted = template.clone()
        if fitted.fit(task) is not fitted:
            fail(kind, "fit does not return the method itself", "override _fit, and leave fit as it is")
        prediction = fitted.predict()
        check_prediction(kind, prediction, task)
        _check_some_nodes(fitted, prediction)
        _check_other_features(fitted, task)
        _check_seed(template, task, prediction)
        _check_hidden_labels(template, task, prediction)
        _check_graph(template, task)
        _check_unchanged(fitted, prediction)
        _check_threads(template, fitted, task, prediction)
        _check_interrupts(template, task)
        _check_files(fitted, task, prediction)
        _check_record(template, task)


def check_prediction(kind: type[Method], prediction: Prediction, task: Task) -> None:
    """Check that a prediction of all nodes meets the contract; return silently if it does.

    Args:
        kind: Class of the method that made the prediction.
        prediction: Result of ``predict()``.
        task: Task that the method was fitted on.

    Raises:
        AssertionError: Names the first problem and its remedy.
    """
    n, c = task.graph.num_nodes, task.num_classes
    if not isinstance(prediction, Prediction):
        fail(kind, f"its predictor returns {type(prediction).__name__}", "return a Prediction")
    if not torch.equal(prediction.nodes, torch.arange(n)):
        fail(kind, "predict() does not return all nodes in order", "pass the nodes on to the Prediction")
    if prediction.class_names != task.class_names:
        fail(kind, "its classes are not those of the task", "pass self.class_names to the Prediction")
    if set(prediction.scores) != set(kind.score_names):
        fail(
            kind,
            f"predicts the scores {', '.join(prediction.scores)}",
            f"declare score_names = {(*prediction.scores,)}",
        )
    if prediction.headline != kind.score_names[0]:
        fail(kind, f"its headline is {prediction.headline}", "name that first in score_names")
    for name, score in prediction.scores.items():
        if score.shape != (n,):
            fail(kind, f"score {name} has the shape {list(score.shape)}", f"give one number for each node, [{n}]")
        if score.dtype != torch.float64 or score.requires_grad or not bool(score.isfinite().all()):
            fail(kind, f"score {name} is not finite in float64 without gradients", "use .double() and .detach()")
    p = prediction.probabilities
    if p is not None:
        if p.shape != (n, c) or p.dtype != torch.float64:
            fail(kind, f"probabilities are {list(p.shape)} in {p.dtype}", f"give [{n}, {c}] in float64")
        if not bool((p >= 0).all()) or not bool(((p.sum(1) - 1).abs() < 1e-6).all()):
            fail(kind, "probabilities are no distributions", "make every row at least 0, with the sum 1")
    credal = prediction.credal
    if (credal is not None) != kind.is_credal:
        has = "predicts" if credal is not None else "does not predict"
        fail(kind, f"{has} credal sets", f"declare is_credal = {credal is not None}")
    if credal is not None:
        if tuple(credal.shape) != (n, c) or prediction.gap is None or prediction.gap.shape != (n,):
            fail(kind, "its credal sets do not fit the nodes and classes", "use Prediction.of_credal")
        low, high = credal.lower.double() - 1e-6, credal.upper.double() + 1e-6
        if p is None:
            fail(kind, "has credal sets and no probabilities", "use Prediction.of_credal")
        if not kind.classifies_beside and not bool(((low <= p) & (p <= high)).all()):
            remedy = "use Prediction.of_credal, or declare classifies_beside = True"
            fail(kind, "its probabilities lie outside its credal sets", remedy)


def _check_class(kind: type[Method]) -> None:
    """Check that hyper-parameters are the fields of a dataclass, and documented."""
    declared = getattr(kind, "__dataclass_fields__", {})
    for base in kind.__mro__:
        if base is Method or not issubclass(base, Method):
            continue
        for name, hint in inspect.get_annotations(base).items():
            if name not in declared and "ClassVar" not in str(hint):  # annotations may be text
                fail(kind, f"{name} is annotated, but is no hyper-parameter", DATACLASS)
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in declared:
            fail(kind, f"its constructor takes {name!r}, which is no field", f"{DATACLASS} and write no __init__")
        if parameter.kind is not parameter.KEYWORD_ONLY:
            fail(kind, f"{name!r} can be passed by position", DATACLASS)
    if kind.__eq__ is not object.__eq__:
        fail(kind, "methods compare by value, so they cannot be hashed", DATACLASS)
    doc = kind.__dict__.get("__doc__") or ""
    if not doc or doc.startswith(f"{kind.__name__}("):  # written by dataclass
        fail(kind, "has no docstring", "explain its scores, all of them higher = less certain")
    section = doc.partition("Args:")[2]
    for field in fields(kind):
        if f"\n    {field.name}: " not in section.replace("\n        ", "\n    "):
            fail(kind, f"hyper-parameter {field.name!r} is not documented", "add it to 'Args:' in the docstring")


def _constructed(kind: type[Method]) -> Method:
    try:
        return kind()
    except (TypeError, MethodError) as error:
        fail(kind, f"cannot be constructed without arguments ({error})", "give every hyper-parameter a default")


def _same_value(one: Any, other: Any) -> bool:
    """Test whether two hyper-parameters are equal; methods compare by their hyper-parameters."""
    if isinstance(one, Method):
        return type(one) is type(other) and _same_params(one.get_params(deep=False), other.get_params(deep=False))
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same_value, one, other))
    return one is other or bool(one == other)


def _same_params(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _check_parameters(template: Method) -> None:
    from sklearn.base import clone

    kind, params = type(template), template.get_params(deep=False)
    for label, copy in (("clone()", template.clone()), ("sklearn.base.clone", clone(template))):
        if type(copy) is not kind or copy is template or copy.is_fitted:
            fail(kind, f"{label} does not make a new, unfitted method", "do not override clone")
        if not _same_params(copy.get_params(deep=False), params):
            fail(kind, f"{label} has other hyper-parameters", "store them unchanged; derive values in _fit")
    if not _same_params(template.clone().set_params(**params).get_params(deep=False), params):
        fail(kind, "set_params does not accept the result of get_params", "do not override them")
    try:
        template.clone().set_params(no_such_parameter=1)
    except MethodError:
        return
    fail(kind, "set_params accepts a hyper-parameter that does not exist", "do not override it")


def _check_components(kind: type[Method]) -> None:
    declared = kind.components
    if declared is None:
        return
    names = {field.name: field for field in fields(kind)}
    if not isinstance(declared, Components):
        fail(kind, "components is of another type", 'declare them with Components("model", Vanilla)')
    if declared.parameter not in names or names[declared.parameter].default is not None:
        fail(kind, f"its components are passed as {declared.parameter!r}", "make that a field whose default is None")
    if declared.size is not None and not isinstance(options(kind).get(declared.size), int):
        fail(kind, f"the number of its components is {declared.size!r}", "make that a field, a whole number")
    check_declared(declared.kind, f"the components of {kind.__qualname__}")


def _check_search(kind: type[Method], task: Task) -> None:
    defaults = options(kind)
    for protocol in PROTOCOLS:
        complete(kind, {}, protocol)
        if kind.objectives[protocol] not in METRICS:
            fail(kind, f"objective {kind.objectives[protocol]!r} is no metric", f"choose from {', '.join(METRICS)}")
    if set(kind.limited_by_training) - set(kind.search_space):
        fail(kind, "limited_by_training names what search_space lacks", "declare all tunable ones in search_space")
    for name, values in kind.search_space.items():
        if name not in defaults:
            fail(kind, f"search_space names {name!r}", f"choose from its hyper-parameters {', '.join(defaults)}")
        if isinstance(values, Uniform):
            candidates: tuple[Any, ...] = (values.low, (values.low + values.high) / 2, values.high)
        elif isinstance(values, tuple) and values:
            candidates = values
        else:
            fail(kind, f"search_space[{name!r}] is neither a Uniform nor a tuple", "write Uniform(0, 1) or (1, 2)")
        for value in candidates:
            try:
                kind(**{**defaults, name: value})
            except (MethodError, TypeError, ValueError) as error:
                fail(kind, f"search_space has {name}={value!r}, which is refused ({error})", "leave it out")


def _check_unfitted(template: Method) -> None:
    try:
        template.clone().predict()
    except MethodError:
        return
    fail(type(template), "predicts before it was fitted", "override _predictor, and leave predict as it is")


def _arrays(prediction: Prediction) -> dict[str, Tensor]:
    """Numerical results of a prediction by name."""
    arrays = {f"score {name}": score for name, score in prediction.scores.items()}
    if prediction.probabilities is not None:
        arrays["probabilities"] = prediction.probabilities
    if prediction.credal is not None:
        arrays |= {"lower bounds": prediction.credal.lower, "upper bounds": prediction.credal.upper}
    return arrays


def _difference(one: Prediction, other: Prediction) -> str | None:
    """Name of the first result that differs in any bit, or None."""
    first, second = _arrays(one), _arrays(other)
    return next((name for name in first if name not in second or not torch.equal(first[name], second[name])), None)


def _check_some_nodes(fitted: Method, prediction: Prediction) -> None:
    """Check predictions of some nodes, up to the order of summation."""
    kind, whole = type(fitted), _arrays(prediction)
    nodes = torch.tensor([5, 0, 17])
    mask = torch.zeros(len(prediction.nodes), dtype=torch.bool)
    mask[nodes] = True
    for selection, expected in ((nodes, nodes), (mask, nodes.sort().values)):
        part = fitted.predict(nodes=selection)
        if not torch.equal(part.nodes, expected):
            fail(kind, "predict(nodes=...) returns other nodes", "pass the nodes on to the Prediction")
        for name, values in _arrays(part).items():
            if not torch.allclose(values.double(), whole[name][expected].double(), rtol=1e-6, atol=1e-6):
                fail(kind, f"{name} of some nodes differs from that of all", "predict the whole graph, then take nodes")


def _check_other_features(fitted: Method, task: Task) -> None:
    features = task.graph.features.to_dense()
    wider = task.graph.replace(features=torch.cat([features, features[:, :1]], 1))
    try:
        fitted.predict(wider)
    except MethodError:
        return
    fail(type(fitted), "predicts a graph with other features", "override _predictor, and leave predict as it is")


def _check_seed(template: Method, task: Task, prediction: Prediction) -> None:
    kind = type(template)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    if name := _difference(prediction, template.clone().fit(task).predict()):
        remedy = "draw from a generator with self.seed" if has_seed(kind) else "add a field seed, and draw with it"
        fail(kind, f"{name} differs when it is fitted again", remedy)
    if has_seed(kind):
        seed = template.get_params(deep=False)["seed"]
        check_prediction(kind, template.clone().set_params(seed=seed + 1).fit(task).predict(), task)


def _check_threads(template: Method, fitted: Method, task: Task, prediction: Prediction) -> None:
    """Check that threads that predict with one method, or fit clones of it, get the results of a single thread."""
    kind, features = type(template), task.graph.features.to_dense().flip(0)
    graphs = task.graph, task.graph.replace(features=features)

    def disturb(epoch: Epoch) -> None:
        torch.manual_seed(epoch.epoch)  # as any other thread might

    def fit(_: int) -> Prediction:
        return template.clone().fit(task, on_epoch=disturb).predict()

    def predict(method: Method, graph: Graph, memory: str | None) -> Prediction | None:
        try:
            return method.predict(graph, memory=memory)
        except MethodError:
            if memory is None:
                raise
            return None  # it needs the whole graph in memory

    budgets = (None, None, "1MiB", "1MiB")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet often
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            predictions = list(pool.map(partial(predict, fitted), THREADS * 2 * graphs, THREADS * budgets))
            fits = list(pool.map(fit, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)
    reference, fresh = template.clone().fit(task), (task.graph, task.graph.replace(features=features.clone()))
    alone = [predict(reference, graph, memory) for graph, memory in zip(2 * fresh, budgets, strict=True)]
    for result, expected in zip(predictions, THREADS * alone, strict=True):
        if (result is None) != (expected is None):
            fail(kind, "a budget of another thread decides what is refused", "use the memory of the context")
        if result is not None and expected is not None and (name := _difference(expected, result)):
            fail(kind, f"{name} differs when several threads predict", "do not modify shared state while predicting")
    for result in fits:
        if name := _difference(prediction, result):
            remedy = "draw inside credalgnn.nn.RngScope(self.seed), or from a generator of the method"
            fail(kind, f"{name} differs when several threads fit", remedy)


def _check_unchanged(fitted: Method, prediction: Prediction) -> None:
    """Check that predict, refused or not, changes no attribute of the method or its components, and no later result."""
    kind, methods = type(fitted), [fitted, *parts_of(fitted).values()]
    before = [dict(vars(method)) for method in methods]
    with suppress(MethodError):
        fitted.predict(memory="1MiB")
    if name := _difference(prediction, fitted.predict()):
        fail(kind, f"{name} differs after predict(memory='1MiB')", "use the memory of the context, and do not keep it")
    for method, attributes in zip(methods, before, strict=True):
        for name, value in vars(method).items():
            if name not in attributes or value is not attributes[name]:
                fail(kind, f"predict changes {name}", "keep what is computed for a graph out of the method")


def _check_interrupts(template: Method, task: Task) -> None:
    """Check that an interrupted refit leaves the old model, the new one, or an unfitted method."""
    kind = type(template)
    other = Task.leave_out(task.graph, task.ood_classes, split_seed=task.graph.num_nodes, inductive=task.inductive)
    new = template.clone()
    calls = _calls(partial(new.fit, other, progress=False))
    method = template.clone().fit(task)
    expected = method.predict(), new.predict()
    for share in INTERRUPTS:
        with suppress(KeyboardInterrupt):
            _calls(partial(method.fit, other, progress=False), max(1, int(share * calls)))
        if not method.is_fitted:
            method = template.clone().fit(task)
            continue
        result = method.predict()
        if all(_difference(one, result) for one in expected):
            remedy = "learn in _fit, which is called on a copy, and leave fit as it is"
            fail(kind, f"interrupted after {share:.0%} of a second fit, it mixes both", remedy)


def _calls(function: Callable[[], object], stop: int | None = None) -> int:
    """Call a function, interrupt the ``stop``-th call inside it or a later one, and return the number of calls."""
    count = 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if stop is not None and count >= stop and not _enters_or_leaves(frame):
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def _enters_or_leaves(frame: FrameType | None) -> bool:
    """Return whether a context is being entered or left, perhaps by a generator: locks and modes would stay forever."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("__enter__", "__exit__", "__del__") or code.co_flags & inspect.CO_GENERATOR:
            return True
        frame = frame.f_back
    return False


def _check_hidden_labels(template: Method, task: Task, prediction: Prediction) -> None:
    """Check that labels of nodes outside training and validation change nothing."""
    hidden = torch.ones(task.graph.num_nodes, dtype=torch.bool)
    hidden[torch.cat([task.split.train, task.split.val])] = False
    labels = task.graph.labels.clone()
    labels[hidden] = labels[hidden].flip(0)
    other = replace(task, graph=task.graph.replace(labels=labels))
    if name := _difference(prediction, template.clone().fit(other).predict()):
        fail(type(template), f"{name} depends on test labels", "learn only from the arguments of _fit")


def _check_graph(template: Method, task: Task) -> None:
    """Check fitting on a graph with explicit training and validation nodes."""
    view = task.training
    mask = torch.zeros(view.val_graph.num_nodes, dtype=torch.bool)
    mask[view.train] = True
    prediction = template.clone().fit(view.val_graph, train=mask, val=view.val).predict()
    if len(prediction.nodes) != len(mask) or not bool(prediction.score.isfinite().all()):
        fail(type(template), "does not predict all nodes of a graph", "pass the nodes on to the Prediction")


def _check_files(fitted: Method, task: Task, prediction: Prediction) -> None:
    kind, remedy = type(fitted), "save all that _fit learns with _state, and set it again in _load_state"
    backbone = fitted.get_params(deep=False).get("backbone")
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        try:
            loaded = load_method(folder, task, method=kind, backbone=backbone if callable(backbone) else None)
            again = loaded.predict()
        except (AttributeError, MethodError) as error:
            fail(kind, f"cannot predict once it is saved and loaded ({error})", remedy)
    if name := _difference(prediction, again):
        fail(kind, f"saved and loaded, its {name} differs", remedy)


def _check_record(template: Method, task: Task) -> None:
    """Check one run of a benchmark."""
    kind = type(template)
    path = method_path(kind)
    if "<locals>" in path:
        fail(kind, "cannot be imported by the processes of a benchmark", "define it at the top level of a module")
    config, components = parameters_of(template)
    run = plan(task.name, path, 0, settings=config, components=[components], inductive=task.inductive)
    with tempfile.TemporaryDirectory() as folder:
        record, _ = execute(run, task, ModelCache(Path(folder)), keep_nodes=True)
    try:
        wrong = wrong_field(json.loads(json.dumps(record)))
    except TypeError as error:
        fail(kind, f"its record cannot be written ({error})", "use hyper-parameters that JSON can hold")
    if wrong is not None:
        fail(kind, f"the field {wrong!r} of its record is missing or wrong", "compare with docs/benchmark.md")
