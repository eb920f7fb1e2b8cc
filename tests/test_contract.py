"""One contract for every registered method: fit, predict, save, load in a fresh process, predict again bit for bit."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from credalgnn import HullSet, IntervalSet, Task, load_task
from credalgnn.graphs import csbm
from credalgnn.methods import METHODS, MethodError, Prediction, Vanilla, load_method
from credalgnn.runtime.files import to_json
from credalgnn.testing import check_method, check_prediction

SHORT: dict[str, Any] = {"hidden": 16, "epochs": 6, "patience": 6}
THREE = ["AU", "EU", "TU"]
SCORES = {
    "vanilla": ["entropy", "msp"],
    "credal-lj": THREE,
    "credal-final": THREE,
    "credal-dual": THREE,
    "credal-frozen": THREE,
    "classical-ensemble": THREE,
    "credal-ensemble": THREE,
    "credal-coverage": [*THREE, "coverage"],
    "energy": ["energy"],
    "odin": ["odin"],
    "mahalanobis": ["distance"],
    "knn": ["distance"],
    "gnnsafe": ["energy"],
    "knn-lj": ["distance"],
    "temperature": ["entropy"],
    "cagcn": ["entropy"],
    "mc-dropout": THREE,
    "drop-edge": THREE,
    "jlde": ["distance"],
    "gebm": ["energy"],
    "grasp": ["msp"],
    "gpn": ["entropy", "evidence", "msp"],
    "evidential": ["dissonance", "entropy", "vacuity"],
    "random-set": [*THREE, "width"],
    "feature-sum": ["score"],
    "degree": ["score"],
}
CREDAL = {
    "credal-lj": IntervalSet,
    "credal-final": IntervalSet,
    "credal-dual": IntervalSet,
    "credal-frozen": IntervalSet,
    "credal-ensemble": HullSet,
    "credal-coverage": IntervalSet,
    "random-set": IntervalSet,
}
NETWORKS = ("vanilla", "credal-lj", "credal-final", "gpn", "evidential", "random-set")
TRIVIAL = ("feature-sum", "degree")
POST_HOC = (
    "credal-coverage",
    "energy",
    "odin",
    "mahalanobis",
    "knn",
    "gnnsafe",
    "knn-lj",
    "temperature",
    "jlde",
    "gebm",
    "grasp",
)
CALIBRATED = ("credal-coverage", "temperature")  # have temperatures of their own

# Networks that are trained for a few epochs have credal sets that say nothing, and warn of it, as they should.
pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")
AGAIN = """
import sys
import numpy as np
import torch
import credalgnn
from credalgnn.methods import METHODS, load_method
from credalgnn.methods.coverage import model

model.TREES = 20  # as in this module's tests
name, setting, folder = sys.argv[1:]
task = credalgnn.load_task(name, inductive=setting == "inductive")
torch.manual_seed(99)
for method in METHODS:
    loaded = load_method(f"{folder}/{method}", task)
    assert type(loaded) is METHODS[method], method
    found = loaded.predict()
    arrays = {f"score {key}": score.numpy() for key, score in found.scores.items()}
    if found.probabilities is not None:
        arrays["probabilities"] = found.probabilities.numpy()
    for part in ("lower", "upper", "members"):
        if hasattr(found.credal, part):
            arrays[part] = getattr(found.credal, part).numpy()
    part = loaded.predict(task.graph, nodes=torch.tensor([0, 5]))
    arrays["part"] = part.score.numpy()
    arrays["headline"] = np.array(found.headline)
    arrays["repr"] = np.array(repr(loaded))
    np.savez(f"{folder}/{method}.npz", **arrays)
"""


def make(name: str, vanilla: Vanilla, members: list[Vanilla]) -> Any:
    """The method, trained briefly; members and vanilla are shared."""
    kind = METHODS[name]
    own = {field.name for field in fields(kind)}
    brief = {option: value for option, value in SHORT.items() if option in own}
    if kind.components is None:
        return kind(**brief | ({"epochs": 25} if name == "random-set" else {}))  # whose sets take longer
    return kind(members=members) if kind.components.size else kind(model=vanilla, **brief)


class Fitted:
    """Every method fitted on one task and saved, and how many trainings that took."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        vanilla, *members = (Vanilla(seed=seed, **SHORT).fit(task) for seed in (0, 1, 2))
        self.methods: dict[str, Any] = {}
        self.trainings: dict[str, int] = {}
        with pytest.MonkeyPatch.context() as patch:
            count = count_trainings(patch)
            for name in METHODS:
                before = len(count)
                self.methods[name] = make(name, vanilla, members)
                assert self.methods[name].fit(task) is self.methods[name]
                self.trainings[name] = len(count) - before
        self.predictions = {name: method.predict() for name, method in self.methods.items()}
        for name, method in self.methods.items():
            method.save(folder / name)


def count_trainings(patch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows whenever an Adam is made, as every training does once."""
    made: list[int] = []
    original = torch.optim.Adam.__init__

    def counted(self: torch.optim.Adam, *args: Any, **options: Any) -> None:
        made.append(1)
        original(self, *args, **options)

    patch.setattr(torch.optim.Adam, "__init__", counted)
    return made


@pytest.fixture(scope="module", params=["digits", "csbm", "csbm inductive"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    name, _, setting = request.param.partition(" ")
    return Fitted(load_task(name, inductive=setting == "inductive"), tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def again(fitted: Fitted) -> dict[str, dict[str, np.ndarray]]:
    """What a fresh process loads and predicts, method by method."""
    setting = "inductive" if fitted.task.inductive else "transductive"
    command = [sys.executable, "-W", "ignore", "-c", AGAIN, fitted.task.name, setting, str(fitted.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: dict(np.load(fitted.folder / f"{name}.npz")) for name in METHODS}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Every method on a task small enough to be saved and broken many times."""
    task = Task.leave_out(csbm(nodes=120, classes=4, features=8), [0], name="small")
    return Fitted(task, tmp_path_factory.mktemp("small"))


def test_every_method_is_registered() -> None:
    assert sorted(METHODS) == sorted(SCORES)
    assert len({*METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_contract(name: str, fitted: Fitted, again: dict[str, dict[str, np.ndarray]]) -> None:
    task, found = fitted.task, fitted.predictions[name]
    check_prediction(METHODS[name], found, task)
    assert sorted(found.scores) == SCORES[name]
    assert torch.equal(found.score, found.scores[found.headline])
    assert len(torch.unique(found.score)) > 5
    assert fitted.methods[name].fingerprint == task.fingerprint

    if name in TRIVIAL:
        assert found.probabilities is None
    else:
        assert torch.equal(found.classes, found.probabilities.argmax(1))
        assert len(torch.unique(found.classes)) > 1

    if SCORES[name] == THREE:
        total, aleatoric, epistemic = (found.scores[key] for key in ("TU", "AU", "EU"))
        assert found.headline == "EU"
        torch.testing.assert_close(epistemic, total - aleatoric, atol=1e-9, rtol=0)
        assert float(epistemic.min()) >= 0.0
        assert float(aleatoric.min()) >= 0.0
        assert float(total.max()) <= np.log2(task.num_classes) + 1e-9
        for one, other in ((found.total, total), (found.aleatoric, aleatoric), (found.epistemic, epistemic)):
            assert torch.equal(one, other)

    if name in CREDAL:
        assert isinstance(found.credal, CREDAL[name])
        box = found.credal if isinstance(found.credal, IntervalSet) else found.credal.to_intervals()
        assert bool((box.lower <= box.upper).all())
        centre = box.intersection_probability().double()
        assert METHODS[name].classifies_beside or bool(box.contains(found.probabilities).all())
        if METHODS[name].classifies_beside:  # the classifier's classes, whatever the sets say
            assert not torch.equal(centre, found.probabilities)
        elif name == "credal-coverage":  # says what its midpoints say, which is in the set as well
            assert torch.equal(centre.argmax(1), found.classes)
        elif name != "random-set":  # which classifies by the pignistic probability
            torch.testing.assert_close(centre, found.probabilities, atol=1e-6, rtol=0)
        assert float(found.gap.min()) >= 0.0
        assert float(found.gap.max()) < 1e-3
        assert torch.equal(found.classify("intersection"), found.classes)
        assert torch.equal(found.classify("lower"), box.lower.argmax(1))
        assert torch.equal(found.classify("upper"), box.upper.argmax(1))
    else:
        assert found.gap is None

    fresh = again[name]
    assert {key.removeprefix("score ") for key in fresh if key.startswith("score ")} == {*found.scores}
    for key, score in found.scores.items():
        assert np.array_equal(fresh[f"score {key}"], score.numpy()), key
    if found.probabilities is not None:
        assert np.array_equal(fresh["probabilities"], found.probabilities.numpy())
    if name in CREDAL:
        for part in ("lower", "upper") if CREDAL[name] is IntervalSet else ("members",):
            assert np.array_equal(fresh[part], getattr(found.credal, part).numpy())
    # A node's distance to itself is the root of squares that cancel, so of 1e-16 or so: products of other shapes round
    # otherwise, as the processor has it, and a mean over neighbours moves by a few 1e-9. Other scores do not.
    rounding = 1e-7 if found.headline == "distance" else 1e-9
    np.testing.assert_allclose(fresh["part"], found.score[[0, 5]].numpy(), rtol=1e-9, atol=rounding)
    assert str(fresh["headline"]) == found.headline
    assert str(fresh["repr"]).split("(")[0] == type(fitted.methods[name]).__name__


@pytest.mark.parametrize("name", list(METHODS))
def test_the_contract_for_anyone_s_methods(name: str) -> None:
    """The same that is asked of classes from outside, of templates that are not fitted."""
    check_method(make(name, Vanilla(**SHORT), [Vanilla(seed=seed, **SHORT) for seed in (0, 1)]))


def test_detectors_share_one_training(fitted: Fitted) -> None:
    """Who is given fitted models trains none of its own."""
    assert {name: fitted.trainings[name] for name in ("vanilla", "credal-lj", "credal-final")} == {
        "vanilla": 1,
        "credal-lj": 1,
        "credal-final": 1,
    }
    assert sum(fitted.trainings[name] for name in POST_HOC) == 0
    assert fitted.trainings["classical-ensemble"] + fitted.trainings["credal-ensemble"] == 0
    assert sum(fitted.trainings[name] for name in TRIVIAL) == 0
    p = fitted.predictions["energy"].probabilities
    for name in POST_HOC:
        if name in CALIBRATED:
            assert torch.equal(fitted.predictions[name].classes, p.argmax(1))
        else:
            assert torch.equal(fitted.predictions[name].probabilities, p)


def test_a_detector_without_vanilla_trains_one_of_its_seed(small: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if one with the defaults had been given."""
    count = count_trainings(monkeypatch)
    alone = METHODS["energy"](seed=4)
    given = METHODS["energy"](model=Vanilla(seed=4))
    predictions = [method.fit(small.task).predict() for method in (alone, given)]
    assert len(count) == 2
    assert torch.equal(predictions[0].score, predictions[1].score)
    other = METHODS["energy"](seed=5).fit(small.task).predict()
    assert not torch.equal(predictions[0].score, other.score)


def test_fitting_again_starts_anew(small: Fitted) -> None:
    """A method is not changed by having been fitted before: the second fit equals the first."""
    for name in ("vanilla", "credal-lj"):
        made = METHODS[name](**SHORT).fit(small.task)
        first = made.predict()
        other = Task.leave_out(small.task.graph, [0], split_seed=8)
        made.fit(other)
        assert made.fingerprint == other.fingerprint
        assert not torch.equal(made.predict().score, first.score)
        assert torch.equal(made.fit(small.task).predict().score, first.score)


@pytest.mark.parametrize("name", list(METHODS))
def test_repr_shows_the_hyper_parameters(name: str, small: Fitted) -> None:
    shown = repr(small.methods[name])
    assert shown.startswith(f"{METHODS[name].__name__}(")
    expected = {
        "vanilla": ("hidden=16", "backbone='sage'", "epochs=6", "seed=0"),
        "credal-lj": ("hidden=16", "delta=0.75", "half_length='softplus'"),
        "credal-final": ("hidden=16", "delta=0.75", "midpoint='identity'"),
        "credal-dual": ("hidden=16", "delta=0.75", "latents=None"),
        "credal-frozen": ("delta=0.75", "latents=None", "lr=0.01"),
        "classical-ensemble": ("seed=0",),
        "credal-ensemble": ("seed=0",),
        "credal-coverage": ("seed=0", "strength=10", "reestimate=True", "AUROC", "trust", "widest interval"),
        "energy": ("temperature=1.0",),
        "odin": ("temperature=1000.0", "epsilon=0.0014"),
        "mahalanobis": ("epsilon=0.0", "layer=-1"),
        "knn": ("k=10", "kth=False", "normalize=False"),
        "gnnsafe": ("alpha=0.5", "steps=2"),
        "knn-lj": ("k=10",),
        "temperature": ("seed=0",),
        "cagcn": ("hidden=16", "margin_weight=0.5"),
        "mc-dropout": ("hidden=16", "dropout=0.5", "samples=20"),
        "drop-edge": ("hidden=16", "edge_dropout=0.5", "samples=20"),
        "jlde": ("k=10", "dimensions=32"),
        "gebm": ("weight=1.0", "alpha=0.5", "steps=10"),
        "grasp": ("share=0.5", "percentile=5.0", "steps=8"),
        "gpn": ("hidden=16", "backbone='mlp'", "dimensions=16", "teleport=0.1"),
        "evidential": ("hidden=16", "kernel_weight=0.001", "bandwidth=1.0"),
        "random-set": ("hidden=16", "budget=20", "mass_weight=0.001"),
        "feature-sum": (),
        "degree": (),
    }[name]
    for words in expected:
        assert words in shown
    assert len(shown) < 3000  # no tensors in it
    assert "tensor" not in shown


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(METHODS))
def test_another_task_is_refused_unless_told(name: str, small: Fitted) -> None:
    folder, method = small.folder / name, METHODS[name]
    other = Task.leave_out(csbm(nodes=140, classes=4, features=8, seed=3), [0], name="other")
    for load in (load_method, partial(load_method, method=method)):
        with pytest.raises(MethodError, match=r"(?i)fingerprint|another task|other task"):
            load(folder, other)
        found = load(folder, other, any_task=True).predict()
        expected = small.methods[name].predict(other.graph)
        assert found.nodes.tolist() == list(range(140))
        assert torch.equal(found.score, expected.score)
        assert torch.equal(load(folder, small.task).predict().score, small.predictions[name].score)
    resplit = Task.leave_out(small.task.graph, [0], split_seed=1)
    with pytest.raises(MethodError, match=r"(?i)fingerprint|another task|other task"):
        load_method(folder, resplit)


@pytest.mark.parametrize("name", list(METHODS))
def test_loaded_without_a_task(name: str, small: Fitted) -> None:
    loaded = load_method(small.folder / name)
    assert type(loaded) is METHODS[name]
    with pytest.raises(MethodError, match="graph"):
        loaded.predict()
    found = loaded.predict(small.task.graph)
    assert torch.equal(found.score, small.predictions[name].score)
    assert loaded.fingerprint == small.task.fingerprint


@pytest.mark.parametrize("name", list(METHODS))
def test_saved_again_it_is_the_same(name: str, small: Fitted, tmp_path: Path) -> None:
    load_method(small.folder / name).save(tmp_path / "again")
    found = load_method(tmp_path / "again", small.task).predict()
    assert torch.equal(found.score, small.predictions[name].score)


@pytest.mark.parametrize("name", list(METHODS))
def test_loading_runs_no_code(name: str, small: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are safetensors and the rest is JSON; nothing is unpickled on the way."""
    files = [path for path in (small.folder / name).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".safetensors", ".json"}
    assert {path.name for path in files} >= {"method.json"}
    for path in files:
        if path.suffix == ".json":
            json.loads(path.read_text())

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("loading unpickles")

    for module, attribute in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, attribute, refuse)
    with pytest.raises(AssertionError):
        torch.load(io.BytesIO(b""))
    found = load_method(small.folder / name, small.task).predict()
    assert torch.equal(found.score, small.predictions[name].score)


@pytest.mark.parametrize("name", list(METHODS))
def test_missing_and_broken_files(name: str, small: Fitted, tmp_path: Path) -> None:
    with pytest.raises(MethodError, match="nowhere"):
        load_method(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MethodError, match="empty"):
        load_method(tmp_path / "empty")
    files = [path.relative_to(small.folder / name) for path in (small.folder / name).rglob("*") if path.is_file()]
    damages = {"missing": None, "blank": b"", "nonsense": b"\x00nonsense", "cut": ...}
    for file in files:
        for damage, content in damages.items():
            folder = tmp_path / f"{file.stem}{file.suffix}-{damage}"
            shutil.copytree(small.folder / name, folder)
            if content is None:
                (folder / file).unlink()
            elif content is ...:
                whole = (folder / file).read_bytes()
                (folder / file).write_bytes(whole[: len(whole) // 2])
            else:
                (folder / file).write_bytes(content)
            with pytest.raises(MethodError, match=rf"{file.name}|{folder.name}"):
                load_method(folder, small.task)


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"method": 3}', '{"method": "nonsense"}', '"vanilla"'])
def test_json_of_something_else(text: str, small: Fitted, tmp_path: Path) -> None:
    shutil.copytree(small.folder / "vanilla", tmp_path / "broken")
    (tmp_path / "broken" / "method.json").write_text(text)
    with pytest.raises(MethodError):
        load_method(tmp_path / "broken", small.task)


def edited(value: Any, old: Any, new: Any) -> Any:
    """A JSON value with one thing in it replaced wherever it stands."""
    if isinstance(value, dict):
        return {key: edited(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [edited(inner, old, new) for inner in value]
    return new if type(value) is type(old) and value == old else value


@pytest.mark.parametrize(
    ("old", "new"),
    [(16, 17), ("sage", "gcn"), ("sage", "os.system"), ("sage", "antigravity"), ("vanilla", "credal-lj")],
    ids=str,
)
def test_configuration_that_does_not_fit_the_weights(old: Any, new: Any, small: Fitted, tmp_path: Path) -> None:
    """Another width, backbone or method than was saved; a name is looked up, never imported."""
    shutil.copytree(small.folder / "vanilla", tmp_path / "broken")
    path = tmp_path / "broken" / "method.json"
    changed = edited(json.loads(path.read_text()), old, new)
    assert changed != json.loads(path.read_text())
    path.write_bytes(to_json(changed))
    with pytest.raises(MethodError):
        load_method(tmp_path / "broken", small.task).predict()
    assert "antigravity" not in sys.modules


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a JSON document; of long lists the first two."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from leaves(inner, (*path, number))


@pytest.mark.parametrize(
    "name",
    [
        "credal-lj",
        "knn-lj",
        "jlde",
        "gebm",
        "grasp",
        "mahalanobis",
        "credal-coverage",
        "classical-ensemble",
        "random-set",
        "degree",
    ],
)
def test_a_damaged_configuration_is_refused_or_harmless(name: str, small: Fitted, tmp_path: Path) -> None:
    """Each value in it is replaced by others, and removed: whatever is then refused is refused in clear words."""
    shutil.copytree(small.folder / name, tmp_path / "broken")
    path = tmp_path / "broken" / "method.json"
    text = path.read_text()
    refused, crashed = 0, []
    for place in list(leaves(json.loads(text)))[1:]:
        for new in (None, "nonsense", -1, 2.5, [], {}, ...):
            document = json.loads(text)
            inner = document
            for key in place[:-1]:
                inner = inner[key]
            if new is ...:
                del inner[place[-1]]
            else:
                inner[place[-1]] = new
            path.write_bytes(to_json(document, allow_nan=True))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # torch's, for a layer of no classes
                    load_method(tmp_path / "broken")
            except MethodError:
                refused += 1
            except Exception as error:
                crashed.append(f"{'.'.join(map(str, place))} = {new!r}: {type(error).__name__}: {error}")
    assert crashed == []
    assert refused > 20


def test_weights_of_another_method_are_refused(small: Fitted, tmp_path: Path) -> None:
    shutil.copytree(small.folder / "vanilla", tmp_path / "mixed")
    shutil.copy(small.folder / "credal-lj" / "model.safetensors", tmp_path / "mixed" / "model.safetensors")
    with pytest.raises(MethodError):
        load_method(tmp_path / "mixed", small.task)


def test_a_flipped_bit_in_the_weights_is_noticed(small: Fitted, tmp_path: Path) -> None:
    """Weights that are whole but not those that were saved predict something else, and nobody would know."""
    for name in METHODS:
        shutil.copytree(small.folder / name, tmp_path / name)
        path = tmp_path / name / "model.safetensors"
        content = bytearray(path.read_bytes())
        if len(content) < 100:  # nothing was learnt
            continue
        content[-2] ^= 1
        path.write_bytes(content)
        with pytest.raises(MethodError, match=r"model\.safetensors"):
            load_method(tmp_path / name, small.task)


def test_backbones_are_saved_by_name(small: Fitted, tmp_path: Path) -> None:
    for backbone in ("edgecnn", "gat", "gatv2", "gcn", "gin"):
        made = METHODS["credal-lj"](backbone=backbone, **SHORT).fit(small.task)
        made.save(tmp_path / backbone)
        loaded = load_method(tmp_path / backbone, small.task)
        assert loaded.backbone == backbone
        assert torch.equal(loaded.predict().score, made.predict().score)


def test_saving_into_a_folder_that_exists_replaces_it_or_refuses(small: Fitted, tmp_path: Path) -> None:
    """Never a mixture: what is loaded afterwards is one of the two, whole."""
    small.methods["vanilla"].save(tmp_path / "model")
    try:
        small.methods["credal-lj"].save(tmp_path / "model")
        expected = "credal-lj"
    except MethodError:
        expected = "vanilla"
    loaded = load_method(tmp_path / "model", small.task)
    assert type(loaded) is METHODS[expected]
    assert torch.equal(loaded.predict().score, small.predictions[expected].score)


def test_all_names_are_exported() -> None:
    import credalgnn

    for method in METHODS.values():
        assert getattr(credalgnn, method.__name__) is method
    assert credalgnn.METHODS is METHODS
    assert credalgnn.load_method is load_method
    assert credalgnn.Prediction is Prediction
