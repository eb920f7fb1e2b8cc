"""Columns made features: against scikit-learn, the same after JSON, and refusals that name the column."""

from __future__ import annotations

import datetime
import json
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from credalgnn.graphs import FeatureEncoder, GraphWarning
from credalgnn.graphs._table_files import read_table
from small_graphs import complains

RNG = np.random.default_rng(0)
ROWS = 400


def encoded(encoder: FeatureEncoder, table: pa.Table) -> dict[str, np.ndarray]:
    """The features by name, dense."""
    matrix, names = encoder(table, "new")
    assert matrix.dtype == np.float32
    full = matrix.toarray() if sp.issparse(matrix) else matrix
    assert full.shape == (table.num_rows, len(names))
    return {name: full[:, at] for at, name in enumerate(names)}


def learnt(columns: dict[str, Any], chosen: list[str] | None = None) -> tuple[FeatureEncoder, dict[str, np.ndarray]]:
    table = pa.table(columns)
    encoder = FeatureEncoder.fit(table, chosen, "nodes")
    return encoder, encoded(encoder, table)


def test_numbers_are_scaled_as_scikit_learn_does() -> None:
    normal = RNG.normal(5, 3, ROWS)
    counts = np.where(RNG.random(ROWS) < 0.8, 0, RNG.integers(1, 9, ROWS))
    flags = RNG.integers(0, 2, ROWS)
    columns = {"normal": normal, "counts": counts, "flags": flags, "yes": flags == 1, "same": np.full(ROWS, 7.3)}
    _, features = learnt(columns)
    assert np.allclose(features["normal"], StandardScaler().fit_transform(normal[:, None])[:, 0], atol=1e-6)
    assert np.allclose(features["counts"], MaxAbsScaler().fit_transform(counts[:, None].astype(float))[:, 0])
    assert np.array_equal(features["counts"] == 0, counts == 0)
    assert np.array_equal(features["flags"], flags)
    assert np.array_equal(features["yes"], flags)
    assert not features["same"].any()


def test_later_tables_are_scaled_by_what_was_learnt() -> None:
    encoder, _ = learnt({"x": [0.0, 2.0, 4.0, 6.0], "same": [5, 5, 5, 5]})
    features = encoded(encoder, pa.table({"x": [3.0, 3.0 + np.sqrt(5)], "same": [5, 8]}))
    assert np.allclose(features["x"], [0, 1])
    assert features["same"].tolist() == [0, 3]


def test_heavy_tails_are_made_logarithms() -> None:
    tail = np.exp(RNG.normal(0, 1, 30_000))
    tail[7] = 1e6
    thin = np.zeros(60_000)
    thin[: len(tail)] = tail
    encoder, features = learnt({"tail": tail, "shifted": tail - 2})
    assert np.allclose(features["tail"], StandardScaler().fit_transform(np.log1p(tail)[:, None])[:, 0], atol=1e-5)
    assert np.allclose(features["shifted"], StandardScaler().fit_transform(tail[:, None])[:, 0], atol=1e-5)  # negative
    assert encoded(encoder, pa.table({"tail": [-3.0], "shifted": [0.0]}))["tail"] < features["tail"].min()
    assert np.allclose(learnt({"thin": thin})[1]["thin"], np.log1p(thin) / np.log1p(1e6))


def test_missing_numbers_are_the_mean_and_said() -> None:
    encoder, features = learnt({"x": [1.0, None, 3.0, float("nan")], "one": [1, 1, 0, 1], "few": [0, 0, None, 5]})
    assert list(features) == ["x", "x is missing", "one", "few", "few is missing"]
    assert np.allclose(features["x"], [-1, 0, 1, 0])
    assert features["x is missing"].tolist() == [0, 1, 0, 1]
    assert features["few"].tolist() == [0, 0, 0, 1]
    later = encoded(encoder, pa.table({"x": [3.0], "one": pa.array([None], pa.int64()), "few": pa.nulls(1)}))
    assert later["one"] == 0.75  # nobody knew that it could be missing
    assert later["few is missing"] == 1
    for bad in (float("inf"), float("-inf")):
        complains(lambda bad=bad: learnt({"x": [1.0, bad]}), "nodes, column x", "row 1", "inf")
    complains(lambda: encoded(encoder, pa.table({"x": [1e300], "one": [1], "few": [1]})), "column x", "row 0")


def test_text_is_one_hot_as_in_scikit_learn() -> None:
    values = RNG.choice(["red", "green", "blue"], ROWS)
    encoder, features = learnt({"colour": values})
    reference = OneHotEncoder(categories=[["blue", "green", "red"]], sparse_output=False)
    wanted = reference.fit_transform(values[:, None])
    for at, value in enumerate(("blue", "green", "red")):
        assert np.array_equal(features[f"colour={value}"], wanted[:, at])
    counts = [features[f"colour={value}"].sum() for value in encoder.columns[0].values]  # type: ignore[union-attr]
    assert counts == sorted(counts, reverse=True)
    dictionary = pa.array(values).dictionary_encode()
    _, same = learnt({"colour": dictionary})
    assert all(np.array_equal(same[name], column) for name, column in features.items())


def test_rare_unseen_and_missing_text() -> None:
    encoder, features = learnt({"c": ["a", "a", " a", "b", "b", "x", "", None]})
    assert list(features) == ["c=a", "c=b", "c=(other)", "c=(missing)"]
    assert [features[name].sum() for name in features] == [3, 2, 1, 2]
    assert np.array_equal(sum(features.values()), np.ones(8))
    with pytest.warns(GraphWarning, match=r"new: 3 fields .* other: 'c=q', 'c=z'$") as caught:
        later = encoded(encoder, pa.table({"c": ["q", "x", "b", "z", "q"]}))
    assert len(caught) == 1
    assert later["c=(other)"].tolist() == [1, 1, 0, 1, 1]
    plain, _ = learnt({"c": ["a", "a"]})
    assert [column.sum() for column in encoded(plain, pa.table({"c": ["a", None]})).values()] == [1, 0]


def test_a_hundred_values_have_a_feature_and_no_more() -> None:
    values = [f"v{k:03}" for k in range(150) for _ in range(3 if k < 100 else 2)]
    encoder, features = learnt({"c": values})
    assert len(features) == 101
    assert encoder.columns[0].values == tuple(f"v{k:03}" for k in range(100))  # type: ignore[union-attr]
    assert features["c=(other)"].sum() == 100


def test_names_and_addresses_are_left_out_unless_asked_for() -> None:
    columns = {"x": np.arange(300.0), "url": [f"http://{k}" for k in range(300)], "few": ["a", "b", "c"] * 100}
    with pytest.warns(GraphWarning, match=r"column 'url' is left out: .*`features`") as caught:
        encoder, features = learnt(columns)
    assert len(caught) == 1
    assert not any(name.startswith("url") for name in features)
    encoded(encoder, pa.table(columns))  # is silent
    _, features = learnt(columns, ["url"])
    assert features["url=(other)"].all()
    with pytest.warns(GraphWarning, match="'empty' is left out: it is empty"):
        learnt({"x": [1, 2], "empty": pa.nulls(2)})
    with pytest.warns(GraphWarning, match="left out"):
        complains(lambda: learnt({"url": [f"http://{k}" for k in range(300)]}), "no column is left")


def test_dates_are_numbers() -> None:
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 3), datetime.date(2020, 1, 5), None]
    times = pa.array([None if day is None else datetime.datetime(day.year, day.month, day.day) for day in days])
    encoder, features = learnt({"day": days})
    assert np.allclose(features["day"], [-np.sqrt(1.5), 0, np.sqrt(1.5), 0])
    for same in (
        times,
        times.cast(pa.timestamp("ns", "UTC")),
        pa.array(days, pa.date64()),
        pa.array(map(str, days[:3])),
    ):
        later = encoded(encoder, pa.table({"day": same}))
        assert np.allclose(later["day"], features["day"][: len(same)])
    complains(lambda: encoded(encoder, pa.table({"day": [5, 6]})), "column day", "int64", "dates")
    complains(lambda: encoded(encoder, pa.table({"day": ["soon"]})), "column day", "dates", "soon")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.int64()), pa.list_(pa.float64(), 3)])
def test_lists_of_numbers_are_a_feature_each(kind: pa.DataType) -> None:
    matrix = RNG.integers(2, 90, (50, 3))
    rows = [*matrix.tolist(), None]
    encoder, features = learnt({"v": pa.array(rows, kind)})
    assert list(features) == ["v[0]", "v[1]", "v[2]", "v is missing"]
    wanted = StandardScaler().fit_transform(matrix.astype(float))
    for at in range(3):
        assert np.allclose(features[f"v[{at}]"], [*wanted[:, at], 0], atol=1e-5)
    assert features["v is missing"].tolist() == [0] * 50 + [1]
    ragged = pa.table({"v": [[1, 2, 3], None, [1, 2]]})
    complains(lambda: encoded(encoder, ragged), "new, column v: row 2", "2 numbers, not of 3")
    complains(lambda: FeatureEncoder.fit(ragged, None, "nodes"), "row 2")
    infinite = pa.table({"v": [None, [1, 2, float("inf")]]})
    complains(lambda: encoded(encoder, infinite), "row 1", "place 2")
    complains(lambda: encoded(encoder, pa.table({"v": ["1 2 3"]})), "column v", "string", "lists")


def test_numbers_in_any_type_are_the_same() -> None:
    encoder, _ = learnt({"x": [0, 1, 2, 3, 5]})
    for same in (
        pa.array([4, None]),
        pa.array([4, None], pa.uint8()),
        pa.array([4, np.nan], pa.float32()),
        pa.array([Decimal("4.00"), None]),
        pa.array(["4", "NA"]),
        pa.array([" +4.0e0 ", ""]),
    ):
        features = encoded(encoder, pa.table({"x": same}))
        assert features["x"].tolist() == pytest.approx([(4 - 2.2) / np.std([0, 1, 2, 3, 5]), 0])
    complains(lambda: encoded(encoder, pa.table({"x": ["1", "many"]})), "new, column x: row 1", "'many'", "numbers")
    complains(lambda: encoded(encoder, pa.table({"x": [[1]]})), "column x", "numbers")


def test_text_that_looks_like_numbers_stays_text(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("code\n" + "007\nA1\n" * 3)
    (tmp_path / "new.csv").write_text("code\n007\n007\n")
    encoder = FeatureEncoder.fit(read_table(tmp_path / "old.csv", "", [], None).table, None, "old")
    assert encoder.text_columns == ["code"]
    new = read_table(tmp_path / "new.csv", "", encoder.text_columns, None).table
    assert encoded(encoder, new)["code=007"].tolist() == [1, 1]
    numbers, _ = learnt({"c": ["1", "2", "true", "x"] * 2})
    later = encoded(numbers, pa.table({"c": pa.array([1.0, 2.0, np.nan])}))
    assert (later["c=1"].tolist(), later["c=2"].tolist()) == ([1, 0, 0], [0, 1, 0])
    assert encoded(numbers, pa.table({"c": [True]}))["c=true"] == 1
    complains(lambda: encoded(numbers, pa.table({"c": [[1]]})), "column c", "text")


def test_columns_that_are_missing_further_or_in_another_order() -> None:
    columns = {"x": RNG.normal(size=ROWS), "colour": RNG.choice(["a", "b"], ROWS), "y": RNG.normal(size=ROWS)}
    encoder, features = learnt(columns)
    turned = encoded(encoder, pa.table(dict(reversed(columns.items()))))
    assert list(turned) == list(features)
    assert all(np.array_equal(turned[name], features[name]) for name in features)
    complains(lambda: encoded(encoder, pa.table({"x": [1.0], "y": [1.0]})), "new", "no column 'colour'", "fitted")
    with pytest.warns(GraphWarning, match="new: 'p', 'q' were not there") as caught:
        encoded(encoder, pa.table(columns | {"p": columns["x"], "q": columns["x"]}))
    assert (len(caught), caught[0].filename) == (1, __file__)
    chosen, _ = learnt(columns, ["y"])
    encoded(chosen, pa.table(columns))  # what was there and not chosen is no news
    complains(lambda: learnt(columns, ["height"]), "no column 'height'")
    complains(lambda: learnt({"s": [{"a": 1}]}), "column s", "struct", "`features`")


def mixed(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "x": pa.array([None if drop else x for x, drop in zip(rng.normal(size=rows), rng.random(rows) < 0.1)]),  # noqa: B905
            "n": rng.poisson(0.2, rows),
            "c": rng.choice(["a", "b", "ü"], rows),
            "d": pa.array(rng.integers(0, 10**9, rows), pa.timestamp("s")),
            "v": pa.array(rng.random((rows, 2)).tolist()),
        }
    )


def test_the_encoder_is_the_same_after_json() -> None:
    encoder = FeatureEncoder.fit(mixed(200), None, "nodes")
    copy = FeatureEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert copy == encoder
    first, second = encoded(encoder, mixed(50)), encoded(copy, mixed(50))
    assert list(first) == list(second)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    for bad in ({}, {"format": 99}, {"format": 1}, {"format": 1, "columns": [{"kind": "?"}], "ignored": []}, []):
        complains(lambda bad=bad: FeatureEncoder.from_json(bad), "not an encoder", "fit the model again")


def test_rows_are_encoded_each_by_itself() -> None:
    """In parts, in another order, in chunks: the same numbers, whichever form the matrix has."""
    table, encoder = mixed(300), FeatureEncoder.fit(mixed(300), None, "nodes")
    whole, order = encoded(encoder, table), RNG.permutation(300)
    chunked = pa.concat_tables([table.slice(0, 100), table.slice(100)])
    for other, rows in ((table.slice(40, 60), slice(40, 100)), (table.take(order), order), (chunked, slice(None))):
        assert all(np.array_equal(column, whole[name][rows]) for name, column in encoded(encoder, other).items())


def test_the_smaller_form_is_chosen() -> None:
    wide = {f"w{k}": np.where(RNG.random(ROWS) < 0.02, RNG.random(ROWS), 0) for k in range(50)}
    matrix, _ = FeatureEncoder.fit(pa.table(wide), None, "nodes")(pa.table(wide), "nodes")
    assert sp.issparse(matrix)
    assert np.allclose(matrix.toarray(), MaxAbsScaler().fit_transform(np.column_stack(list(wide.values()))))
    full = {"x": RNG.normal(size=ROWS), "c": RNG.choice(["a"], ROWS)}
    matrix, names = FeatureEncoder.fit(pa.table(full), None, "nodes")(pa.table(full), "nodes")
    assert isinstance(matrix, np.ndarray)
    assert names == ("x", "c=a", "c=(other)")


def test_a_table_of_many_columns_takes_no_time_a_cell() -> None:
    """A loop over rows in Python would take a minute for these ten million cells."""
    import time

    table = pa.table({f"x{k}": RNG.normal(size=10_000) for k in range(1000)})
    start = time.process_time()
    with warnings.catch_warnings(action="error"):
        FeatureEncoder.fit(table, None, "nodes")(table, "nodes")
    assert time.process_time() - start < 10
