"""The package from outside: what starting it costs, and what the command line says."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import credalgnn
from credalgnn.cli import main
from credalgnn.runtime.names import EXTRAS, install_hint

ROOT = Path(__file__).parents[1]


def run(
    *arguments: str, folder: Path | None = None, stdin: str | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder, input=stdin
    )


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_find_what_they_import(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run for minutes to hours, so nobody runs them at every change; that they can begin is quickly asked."""
    monkeypatch.syspath_prepend(str(script.parent))  # as it is for a script
    spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for it
    spec.loader.exec_module(module)


def test_import_costs_little_more_than_torch() -> None:
    code = (
        "import time, torch; begin = time.perf_counter(); import credalgnn; credalgnn.uncertainty; "
        "import sys; print(time.perf_counter() - begin, *sorted(sys.modules))"
    )
    runs = [run("-c", code).stdout.split() for _ in range(3)]
    assert min(float(seconds) for seconds, *_ in runs) < 0.5
    heavy = {"numba", "scipy", "sklearn", "matplotlib", "torch_geometric", "optuna", "ray"}
    assert not heavy & set(runs[0][1:])


def test_install_hints_name_an_extra_that_has_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert any(re.match(rf"{package}\b", requirement) for requirement in extras[extra])
        assert f"pip install -e '.[{extra}]'" in install_hint(package)


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not HUGE.exists() or "[never]" in HUGE.read_text(), reason="a system without huge pages")
def test_large_tensors_lie_in_huge_pages() -> None:
    """Without them, half of an epoch on a graph of millions of nodes is the system's time, for pages one by one."""
    code = (
        "import credalgnn, torch; x = torch.ones(1 << 26); "
        "print(*[line for line in open('/proc/self/smaps_rollup') if line.startswith('AnonHuge')])"
    )
    assert int(run("-c", code).stdout.split()[1]) > 0


def test_help_answers_within_a_second_and_without_torch() -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        answer = run("-X", "importtime", "-m", "credalgnn", "--help")
        times.append(time.perf_counter() - begin)
    assert min(times) < 1.0
    assert answer.returncode == 0
    assert "uncertainty" in answer.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert "credalgnn.cli" in imported
    assert not {"torch", "numpy"} & imported


def test_public_names_exist_and_are_typed() -> None:
    for name in credalgnn.__all__:
        assert getattr(credalgnn, name) is not None
        assert name in dir(credalgnn)
    assert (files("credalgnn") / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = credalgnn.nonsense


def documented(doc: str | None) -> set[str]:
    """The names that the section "Args" (or "Attributes") of a docstring explains."""
    text = inspect.cleandoc(doc or "")
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, flags=re.M)
    return {name for section in sections for name in re.findall(r"^    \*{0,2}(\w+): \S", section, flags=re.M)}


@pytest.mark.parametrize("name", [name for name in credalgnn.__all__ if name not in ("METHODS", "__version__")])
def test_every_parameter_is_documented(name: str) -> None:
    """Of public functions, of constructors, and of the public methods of classes, where they are defined."""
    thing = getattr(credalgnn, name)
    thing = thing.report if inspect.ismodule(thing) else thing
    assert thing.__doc__
    described = {name: thing}
    if inspect.isclass(thing):
        described = {} if issubclass(thing, Exception) else described
        for each, function in inspect.getmembers(thing, inspect.isroutine):
            if not each.startswith("_") and str(getattr(function, "__module__", "")).startswith("credalgnn"):
                described[f"{name}.{each}"] = function
    for path, each in described.items():
        known = documented(inspect.getdoc(each))  # an override has the docstring of what it overrides
        parameters = inspect.signature(each).parameters
        missing = [word for word in parameters if word not in known and word != "self"]
        assert not missing, f"{path} does not document {', '.join(missing)}"


def test_the_hyper_parameters_of_the_paper_s_model_are_documented() -> None:
    names = {field.name for field in fields(credalgnn.CredalLJ)}
    assert {"delta", "half_length", "midpoint", "backbone", "hidden", "layers", "monitor", "seed", "device"} <= names
    assert len(names) >= 15
    assert names <= documented(credalgnn.CredalLJ.__doc__)


FIRST_USE = """
import collections, os, sys
os.environ["NUMBA_CACHE_DIR"] = sys.argv[1]
import torch
from numba.core.event import RecordingListener, install_listener
import credalgnn as cg
p, heard = torch.full((1, 2), 0.5), RecordingListener()
with install_listener("numba:compile", heard):
    for credal in (cg.IntervalSet(p - 0.1, p + 0.1), cg.HullSet(p[None])):
        cg.uncertainty(credal, certify=True)
compiled = (event.data["dispatcher"].py_func for _, event in heard.buffer if event.is_start)
names = (function.__name__ for function in compiled if function.__module__.startswith("credalgnn"))
for name, times in collections.Counter(names).items():
    print(name, times)
"""


@pytest.mark.slow
def test_the_first_use_compiles_every_function_once_and_the_next_finds_it(tmp_path: Path) -> None:
    first, second = (run("-c", FIRST_USE, str(tmp_path)) for _ in range(2))
    compiled = dict(line.split() for line in first.stdout.splitlines())
    assert {"interval_entropies", "_search", "hull_entropies"} <= set(compiled), first.stderr
    assert set(compiled.values()) == {"1"}
    kept = [path.name.split("-")[0] for path in tmp_path.rglob("*.nbc")]
    assert sorted(kept) == ["_numba.interval_entropies", "_numba_hull.hull_entropies"]
    assert (second.stdout, second.returncode) == ("", 0)
    assert first.stderr == second.stderr == ""  # no terminal, no note


def test_who_waits_for_the_compiler_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    from numba import njit

    from credalgnn.runtime.compiling import announce

    for terminal in (True, False):

        @njit
        def kernel(x: float) -> float:
            return x

        announce(kernel, "a kernel")
        with monkeypatch.context() as patch:
            patch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
            assert kernel(1.0) == kernel(2.0) / 2
        said = capsys.readouterr().err.splitlines()
        assert len(said) == terminal
        assert all(line == "compiling a kernel" for line in said)


BOUNDS = (
    "id,lower_cat,lower_dog,lower_owl,upper_cat,upper_dog,upper_owl\nn1,0.1,0.2,0.1,0.5,0.6,0.7\nn2,.9,0,0,1,.1,.05\n"
)


def test_uncertainty_of_a_csv_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "bounds.csv", tmp_path / "out.csv"
    path.write_text(BOUNDS)
    assert main(["uncertainty", str(path)]) == 0
    header, first, second = (line.split(",") for line in capsys.readouterr().out.splitlines())
    assert header == ["id", "total", "aleatoric", "epistemic", "gap", "prediction", "kept"]
    assert first[0] == "n1"
    assert first[-2:] == ["dog", "cat|dog|owl"]
    assert float(first[1]) == pytest.approx(np.log2(3), abs=1e-8)  # the uniform distribution is in the set
    lowest = np.array([0.1, 0.2, 0.7])
    assert float(first[2]) == pytest.approx(-(lowest * np.log2(lowest)).sum(), abs=1e-8)
    assert float(first[3]) == pytest.approx(float(first[1]) - float(first[2]), abs=1e-8)
    assert second[-2:] == ["cat", "cat"]
    assert main(["uncertainty", str(path), "--out", str(out), "--rule", "interval-dominance"]) == 0
    assert "2 credal sets measured" in capsys.readouterr().out
    assert out.read_text().splitlines()[0] == ",".join(header)
    assert [file.name for file in tmp_path.iterdir()].count("out.csv.part") == 0


def test_uncertainty_of_an_npz_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = np.array([[[0.5, 0.5]], [[1.0, 0.0]]])
    np.savez(tmp_path / "members.npz", members=members)
    np.savez(tmp_path / "bounds.npz", lower=members.min(0), upper=members.max(0))
    for name in ("members", "bounds"):
        assert main(["uncertainty", str(tmp_path / f"{name}.npz")]) == 0
        row = capsys.readouterr().out.splitlines()[1].split(",")
        assert [float(value) for value in row[:3]] == pytest.approx([1.0, 0.0, 1.0], abs=1e-9)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.csv", None, "no such file"),
        ("x.txt", "hello", "must be a .csv or .npz file"),
        ("x.csv", "", "not a CSV file with a header"),
        ("x.csv", "a,b\n1,2\n", "no columns lower_NAME"),
        ("x.csv", "lower_a,lower_b,upper_a\n0,0,1\n", "column upper_b is missing"),
        ("x.csv", "lower_a,lower_a,upper_a\n0,0,1\n", "stands twice"),
        ("x.csv", "lower_a,upper_a\n0,1\n0\n", "line 3: 1 fields where the header has 2"),
        ("x.csv", "lower_a,upper_a\n0,one\n", "line 2, column upper_a: 'one' is not a number"),
        ("x.csv", "lower_a,lower_b,upper_a,upper_b\n0.7,0.1,0.2,0.9\n", "line 2, class 0: lower 0.7 > upper 0.2"),
        ("x.csv", "lower_a,lower_b,upper_a,upper_b\n0.7,0.6,0.8,0.9\n", "line 2: the lower bounds sum to 1.3"),
        ("x.csv", "upper_a,lower_b,upper_b\n1,0,1\n", "column lower_a is missing beside upper_a"),
        ("x.csv", "lower_a|b,upper_a|b\n1,1\n", "has a | in it"),
        ("x.csv", "lower_a,upper_a\n0," + "1" * 200_000, "not a CSV file with a header (field larger"),
        ("x.npz", "not a zip", "not a readable npz file"),
        ("x.npz", "", "not a readable npz file"),
    ],
)
def test_bad_files_give_one_line_and_exit_2(
    name: str, content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert main(["uncertainty", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_an_error_from_outside(tmp_path: Path) -> None:
    answer = run("-m", "credalgnn", "uncertainty", str(tmp_path / "no.csv"))
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert "no such file" in answer.stderr


DOCUMENTS = [
    "README.md",
    "docs/coverage.md",
    "docs/data.md",
    "docs/extend.md",
    "docs/methods.md",
    "docs/reliability.md",
    "docs/uncertainty.md",
]


# One process runs them all, as to start one takes as long as the code of a guide. Each program is __main__ in turn, but
# has no file that processes of a benchmark would run again. 20 of the 100 trees of credal-coverage show if code runs.
READER = """
import json, os, sys, traceback, types
import credalgnn.methods.coverage.model as coverage
coverage.TREES = 20
errors = {}
for document, programs in json.load(sys.stdin).items():
    os.makedirs(document)
    os.chdir(document)
    try:
        for program in programs:
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(program, document, "exec"), main.__dict__)
    except Exception:
        errors[document] = traceback.format_exc()
    os.chdir(sys.argv[1])
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def errors_in_documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What goes wrong in the Python blocks of each: of the README each on its own, of a guide one after the other."""
    programs = {}
    for document in DOCUMENTS:
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.S)
        assert blocks, document
        programs[document] = blocks if document == "README.md" else ["\n".join(blocks)]
    folder = tmp_path_factory.mktemp("documents")
    (folder / "reader.py").write_text(READER)
    answer = run("reader.py", str(folder), folder=folder, stdin=json.dumps(programs), timeout=300)
    assert answer.returncode == 0, answer.stderr
    errors: dict[str, str] = json.loads(answer.stdout.splitlines()[-1])
    return errors


@pytest.mark.parametrize("document", DOCUMENTS)
def test_code_in_documents_runs(document: str, errors_in_documents: dict[str, str]) -> None:
    assert document not in errors_in_documents, errors_in_documents[document]


def test_input_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bounds.csv"
    path.write_text(BOUNDS)
    assert main(["uncertainty", str(path), "--out", str(path)]) == 2
    assert "would overwrite the input" in capsys.readouterr().err
    assert path.read_text() == BOUNDS
    assert main(["uncertainty", str(tmp_path)]) == 2
    assert "not a file" in capsys.readouterr().err


def test_bad_npz_and_bad_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, lower=np.zeros((2, 3)))
    assert main(["uncertainty", str(path)]) == 2
    assert "no array 'upper'" in capsys.readouterr().err
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 3)))
    assert main(["uncertainty", str(path)]) == 2
    assert "a single array" in capsys.readouterr().err
    np.savez(path, lower=np.zeros(3), upper=np.ones(3))
    assert main(["uncertainty", str(path)]) == 2
    assert "not 2 dimensions" in capsys.readouterr().err
    np.savez(path, lower=np.array([["a"]], dtype=object), upper=np.ones((1, 1)))
    assert main(["uncertainty", str(path)]) == 2
    assert "not a readable npz" in capsys.readouterr().err  # a pickle is never loaded
    assert main(["uncertainty", str(path), "--out", str(path / "out.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    for words in ([], ["nonsense"], ["uncertainty"], ["uncertainty", str(path), "--rule", "coin"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
