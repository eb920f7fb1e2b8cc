"""The page of a person's own graph in a real browser: what is shown is what the table says, by mouse and by keys."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
import torch

from credalgnn import Graph
from credalgnn.report.graph import GraphPage, write_graph_page

pytest.importorskip("selenium.webdriver", reason="the page is tested in a browser by selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from browser import Page, embedded

HOSTILE = "<script>alert(1)</script>\u2028'\"&lt;</script><img src=x onerror=alert(2)>"
NAMES = ("low", "middle", "high")


# ---------------------------------------------------------------- a model that never was


def made(
    size: int = 300,
    names: Sequence[str] = NAMES,
    ids: Sequence[Any] | None = None,
    credal: bool = True,
    calibrated: bool = True,
    parts: bool = True,
    seed: int = 0,
) -> GraphPage:
    """A page of random numbers with every kind of node: flagged, in doubt, wrong, without edges, of unknown classes."""
    random = np.random.default_rng(seed)
    classes = len(names)
    p = random.dirichlet(np.full(classes, 0.4), size)
    best = p.argmax(1)
    half = random.random((size, classes)) * np.minimum(p, 1 - p)
    coverage = random.random(size)
    p_value = random.integers(1, 101, size) / 100
    flagged = p_value <= 0.05
    table: dict[str, Any] = {
        "id": np.arange(size) if ids is None else list(ids),
        "class": [names[k] for k in best],
        "probability": p.max(1),
    }
    if credal:
        table |= {f"lower_{name}": (p - half)[:, k] for k, name in enumerate(names)}
        table |= {f"upper_{name}": (p + half)[:, k] for k, name in enumerate(names)}
        table |= {"EU": random.random(size), "AU": random.random(size), "TU": random.random(size), "coverage": coverage}
    else:
        table |= {f"p_{name}": p[:, k] for k, name in enumerate(names)} | {"entropy": random.random(size)}
    if calibrated:
        kept = [[k for k in np.argsort(-row) if k == row.argmax() or row[k] > 0.3] for row in p]
        table |= {
            "p_value": p_value,
            "unfamiliar": flagged,
            "classes": ["|".join(names[k] for k in one) for one in kept],
        }
    table["reasons"] = ["unlike labelled nodes, in some ways" if one else "" for one in flagged]
    labels = np.where(random.random(size) < 0.5, random.integers(classes + 1, size=size), -1)  # the last one is new
    edges = random.integers(size - 5, size=(2, 3 * size))  # the last five have none
    order = random.permutation(np.flatnonzero((labels >= 0) & (labels < classes)))
    cut = len(order) // 2
    found = {"train": order[:cut], "val": order[cut : cut + 9], "calibration": order[cut + 9 : cut + 30]}
    train = torch.from_numpy(found["train"])
    graph = Graph(random.random((size, 4)), edges, labels, ids, (*names, "other"))

    def nearest(nodes: torch.Tensor) -> torch.Tensor:
        return train[torch.cdist(graph.features[nodes], graph.features[train]).topk(5, largest=False).indices]

    summary = {
        "method": "credal-coverage",
        "accuracy": 0.912,
        "judged": 77,
        "ece": 0.034,
        "set_sizes": {0.95: 1.5, 0.8: 1.1},
        "false_alarms": 0.05,
        "calibration": 21,
        "diagnosis": {"trust": 0.957, "uncovered": 0.438, "auroc": math.nan} if credal else None,
        "warnings": ["Few nodes are labelled."],
        "predictions": "predictions.parquet",
    }
    alarms = [
        {"false_alarms": 0.01, "flagged": 2, "of": 100, "expected": 1.0},
        {"false_alarms": 0.05, "flagged": 40, "of": 100, "expected": 5.0},
    ]
    shown = {name: torch.from_numpy(nodes) for name, nodes in found.items()} if parts else {}
    return GraphPage(
        "My graph", graph, pa.table(table), tuple(names), shown, nearest, summary, alarms if calibrated else []
    )


IDS = [f"paper {k}/ä#%&?{'=' * (k % 2)}" for k in range(300)]


@pytest.fixture(scope="module")
def given() -> GraphPage:
    return made(ids=IDS)


@pytest.fixture(scope="module")
def written(given: GraphPage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "report.html"
    write_graph_page(given, path)
    return path


@pytest.fixture
def page(browser: Page, written: Path) -> Page:
    browser.open(written)
    return browser


def rows_of(page: GraphPage) -> list[dict[str, Any]]:
    """What is known of every node: the table, and label, part, kind and neighbours as a plain loop finds them."""
    rows: list[dict[str, Any]] = page.table.to_pylist()
    part = {int(node): name for name, nodes in page.parts.items() for node in nodes}
    beside: list[set[int]] = [set() for _ in rows]
    for a, b in page.graph.edge_index.T.tolist():
        if a != b:
            beside[a].add(b)
            beside[b].add(a)
    for node, row in enumerate(rows):
        label = int(page.graph.labels[node])
        row |= {"node": node, "label": page.graph.class_names[label] if label >= 0 else None, "part": part.get(node)}
        row |= {"beside": sorted(beside[node]), "id": str(row["id"])}
        if f"lower_{page.class_names[0]}" in row:
            row["widest"] = max(row[f"upper_{name}"] - row[f"lower_{name}"] for name in page.class_names)
    return rows


def shown(page: Page, box: str = "#nodes-table") -> list[str]:
    return page.attributes(f"{box} tbody tr", "data-node")


def link(page: Page, name: str, box: str = "#nodes-table") -> Any:
    return page.run(
        "return [...document.querySelectorAll(arguments[0])].find(a => a.textContent === arguments[1])",
        f"{box} .node-link",
        name,
    )


def find(page: Page, words: str) -> None:
    page.one("#find").clear()
    page.one("#find").send_keys(words)


def is_open(page: Page) -> bool:
    return bool(page.run("return document.getElementById('panel').open"))


def wait(page: Page, condition: Callable[[], bool]) -> None:
    WebDriverWait(page.driver, 5).until(lambda _: condition())


def opened(page: Page, name: str) -> None:
    wait(page, lambda: is_open(page) and page.texts("#panel h2") == [f"Node {name}"])


# ---------------------------------------------------------------- tests


VARIANTS: dict[str, dict[str, Any]] = {
    "credal": {},
    "probabilities": {"credal": False},
    "not calibrated": {"calibrated": False},
    "neither": {"credal": False, "calibrated": False},
    "one class": {"names": ("only",)},
    "many classes": {"names": [f"class {k}" for k in range(70)]},
    "nobody labelled": {"parts": False},
    "a class named value": {"names": ("value", "other value"), "credal": False, "calibrated": False},
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_opens_without_errors_and_without_network(browser: Page, tmp_path: Path, kind: str) -> None:
    given = made(size=80, **VARIANTS[kind])
    if kind == "nobody labelled":
        given = replace(given, nearest=None, summary={}, alarms=[])
    path = tmp_path / "x.html"
    write_graph_page(given, path)
    browser.open(path)
    for name in ("0", "79"):  # the last one has no edges
        browser.run(f"location.hash = '#node={name}'")
        opened(browser, name)
        words = browser.one("body").get_property("innerText")
        assert "NaN" not in words
        assert "undefined" not in words
        assert "null" not in words
    assert "No edge joins it to another node" in browser.one("#panel").text
    assert browser.requests() == {path.as_uri()}
    assert browser.complaints() == []
    assert len(browser.attributes("#figures figure > svg", "aria-label")) >= (2 if given.table.num_columns > 8 else 1)
    browser.run("fetch('https://example.org/').catch(() => {})")  # the log would have shown it
    assert any("Content Security Policy" in text for text in browser.complaints())


def test_the_lead_and_the_facts_say_what_the_table_says(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    new = [row for row in rows if row["part"] is None]
    flagged = [row for row in new if row["unfamiliar"]]
    lead = page.one("#lead").text
    for text in (
        "300 nodes",
        f"{len(new)} of them took no part in training",
        f"{len(flagged)} of these {len(new)} nodes are flagged",
    ):
        assert text in lead
    assert f"about {round(0.05 * len(new))} false alarms were expected: at least about" in lead
    assert "Few nodes are labelled." in page.one("#warnings").text
    facts = page.one("#facts-list").text
    unlabelled = sum(row["label"] is None for row in rows)
    assert f"300: {unlabelled} without a label, {sum(not row['beside'] for row in rows)} without an edge" in facts
    for text in ("91.2 % on 77 nodes", "3.4 %", "1.10 classes for 80 %, 1.50 classes for 95 %", "early stopping 9"):
        assert text in facts
    cells = [line.split("\t") for line in page.run("return document.querySelector('#classes').innerText").split("\n")]
    for name, line in zip(NAMES, cells[1:], strict=False):
        mine = [row for row in new if row["class"] == name]
        numbers = [sum(row["label"] == name for row in rows), len(mine), sum(row["unfamiliar"] for row in mine)]
        assert line == [name, *map(str, numbers)]
    assert cells[4][0] == "other (unknown to the model)"
    alarms = page.texts("#alarms tbody td:last-child")
    assert "no sign of unknown classes" in alarms[0]
    assert "at least about 35 of the 100 are of unknown classes" in alarms[1]
    page.click("summary")
    assert "Trust 0.96" in page.one("#diagnosis").text


def test_typical_nodes_come_first(page: Page, given: GraphPage) -> None:
    rows = [row for row in rows_of(given) if row["part"] is None]
    kinds = {
        "ood": lambda row: row["unfamiliar"],
        "id": lambda row: not row["unfamiliar"] and row["classes"] == row["class"],
    }
    for kind, fits in kinds.items():
        mine = sorted((row for row in rows if fits(row)), key=lambda row: row["EU"])
        row = mine[(len(mine) - 1) // 2]
        (name,) = page.attributes(f"#examples .card.{kind}", "data-node")
        assert name == row["id"]
        bars = page.attributes(f"#examples .card.{kind} .interval", "x")
        assert [float(x.rstrip("%")) for x in bars] == pytest.approx(
            [100 * row[f"lower_{name}"] for name in NAMES], abs=0.01
        )
    page.click("#examples .card.id .node-link")
    opened(page, name)


def test_nodes_are_found_by_id_and_by_class(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    assert page.one("#nodes-table .where").text == "1\N{EN DASH}25 of 300"
    assert shown(page) == IDS[:25]
    page.click("#nodes-table .pager button:last-child")
    assert shown(page) == IDS[25:50]
    find(page, IDS[7].upper())
    assert shown(page) == [IDS[7]]
    find(page, "paper 1/")  # ids that contain it, whatever stands before
    assert shown(page) == [IDS[1]]
    find(page, "PAPER 29")
    assert shown(page) == [IDS[29], *IDS[290:300]]
    find(page, "iddl")
    fits = [row["id"] for row in rows if "middle" in (row["class"], row["label"])]
    assert shown(page) == fits[:25]
    assert f"{len(fits)} nodes with" in page.one("#found").text
    find(page, "no such thing")
    assert shown(page) == []
    assert page.one("#nodes-table .where").text == "no nodes"
    assert not page.one("#download").is_enabled()


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda row: True,
    "flagged": lambda row: row["unfamiliar"],
    "doubt": lambda row: not row["unfamiliar"] and row["classes"] != row["class"],
    "known": lambda row: not row["unfamiliar"] and row["classes"] == row["class"],
    "wrong": lambda row: row["label"] is not None and row["label"] != row["class"],
}


def test_filters_and_sorting(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    assert page.attributes("#filters button", "data-filter") == list(FILTERS)
    for name, fits in FILTERS.items():
        page.click(f"#filters [data-filter={name}]")
        mine = [row["id"] for row in rows if fits(row)]
        assert mine
        assert shown(page) == mine[:25]
        assert page.attributes("#filters [aria-pressed=true]", "data-filter") == [name]
        assert page.one(f"#filters [data-filter={name}]").text.endswith(f"({len(mine)})")
    for label, key in (("EU", "EU"), ("Widest %", "widest")):
        button, order = page.header("#nodes-table", label)
        page.click(button)
        assert order() == "descending"
        best = sorted((row for row in rows if FILTERS["wrong"](row)), key=lambda row: -row[key])
        assert shown(page) == [row["id"] for row in best][:25]


def test_unfamiliar_nodes_are_listed_by_p_value(page: Page, given: GraphPage) -> None:
    mine = sorted((row for row in rows_of(given) if row["unfamiliar"]), key=lambda row: row["p_value"])
    assert shown(page, "#unfamiliar-table") == [row["id"] for row in mine][:10]
    assert page.header("#unfamiliar-table", "p-value")[1]() == "ascending"
    assert f"{len(mine)} nodes flagged at 5 % false alarms" in page.one("#unfamiliar-note").text
    old = sum(row["part"] is not None for row in mine)
    assert f"{old} of them took part in training" in page.one("#unfamiliar-note").text
    page.click(link(page, mine[1]["id"], "#unfamiliar-table"))
    opened(page, mine[1]["id"])


def test_a_panel_says_what_is_known_of_a_node(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    row = next(row for row in rows if row["unfamiliar"] and len(row["beside"]) >= 3 and row["part"] == "train")
    find(page, row["id"])
    page.click("#nodes-table tbody td:nth-child(3)")  # anywhere in the row
    opened(page, row["id"])
    for k, name in enumerate(NAMES):
        line = page.one(f"#panel tr[data-class='{k}']")
        assert line.text.startswith(name)
        assert ("predicted" in line.text) == (row["class"] == name)
        assert ("label" in line.text) == (row["label"] == name)
        bar, low, high = line.find_element(By.CSS_SELECTOR, ".interval"), row[f"lower_{name}"], row[f"upper_{name}"]
        assert float(bar.get_attribute("x").rstrip("%")) == pytest.approx(100 * low, abs=0.01)
        assert float(bar.get_attribute("width").rstrip("%")) == pytest.approx(100 * max(high - low, 0.002), abs=0.01)
    facts = page.one("#panel .facts").text
    for text in (
        f"Predicted\n{row['class']}",
        "flagged: unlike all labelled nodes",
        f"Label\n{row['label']}",
        "training:",
    ):
        assert text in facts
    assert f"{row['p_value']:.2f}: about {100 * row['p_value']:.3g} %" in facts
    assert f"In question\n{row['classes'].replace('|', ', ')}" in facts
    assert page.one("#panel .reasons").text == row["reasons"]
    lists = page.run(
        "return [...document.querySelectorAll('#panel .neighbours')].map(u => [...u.querySelectorAll('a')].map("
        "a => [decodeURIComponent(a.hash.slice(6)), a.textContent.replace('flagged: ', '')]))"
    )
    for (name, text), node in zip(lists[0], row["beside"], strict=True):
        other = rows[node]
        assert name == other["id"]
        label = other["label"]
        words, width = text.rsplit(" ", 1)
        assert words == f"{name}: {f'{label} (label)' if label else other['class']}, width"
        assert float(width) == pytest.approx(other["widest"], abs=0.00501)
    features = given.graph.features.numpy()
    far = {int(n): float(((features[n] - features[row["node"]]) ** 2).sum()) for n in given.parts["train"]}
    near = sorted(far, key=lambda node: far[node])[:5]
    assert [name for name, _ in lists[1]] == [rows[node]["id"] for node in near]
    assert [text for _, text in lists[1]] == [f"{rows[node]['id']}: {rows[node]['label']}" for node in near]
    assert page.complaints() == []


def test_a_panel_without_a_reason_says_what_that_means(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    for kind, words in (("doubt", "several classes fit it"), ("known", "one class fits it")):
        name = next(row["id"] for row in rows if FILTERS[kind](row))
        page.run("location.hash = arguments[0]", f"#node={quote(name, safe='')}")
        opened(page, name)
        assert words in page.one("#panel .reasons").text


def test_neighbours_are_followed_and_the_back_button_goes_back(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)
    first = next(row for row in rows[:25] if row["beside"])
    second = rows[first["beside"][0]]
    start = page.driver.current_url
    page.click(link(page, first["id"]))
    opened(page, first["id"])
    assert page.driver.current_url == f"{start}#node={quote(first['id'], safe='')}"
    assert page.driver.title == f"{first['id']} \N{EN DASH} My graph"
    page.click("#panel .neighbours a")
    opened(page, second["id"])
    page.click(page.driver.find_elements(By.CSS_SELECTOR, "#panel .neighbours")[-1].find_element(By.TAG_NAME, "a"))
    wait(page, lambda: page.texts("#panel h2") != [f"Node {second['id']}"])
    page.driver.back()
    opened(page, second["id"])
    page.driver.back()
    opened(page, first["id"])
    page.driver.back()
    wait(page, lambda: not is_open(page))
    assert (page.driver.current_url, page.driver.title) == (start, "My graph")
    page.driver.forward()
    opened(page, first["id"])
    page.click("#close")
    wait(page, lambda: page.driver.current_url == start)
    assert not is_open(page)
    page.driver.back()
    opened(page, first["id"])
    assert page.complaints() == []


def test_a_link_can_be_shared(browser: Page, written: Path) -> None:
    browser.open(written)
    for name in (IDS[41], IDS[298]):
        browser.driver.get("about:blank")
        browser.driver.get(f"{written.as_uri()}#node={quote(name, safe='')}")
        opened(browser, name)
    may = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.driver.execute_cdp_cmd("Browser.grantPermissions", may)
    browser.click("#copy")
    wait(browser, lambda: "copied" in browser.one("#copied").text)
    browser.press(Keys.ESCAPE)
    find(browser, "")
    browser.one("#find").send_keys(Keys.CONTROL, "v")
    assert browser.run("return document.getElementById('find').value") == (
        f"{written.as_uri()}#node={quote(IDS[298], safe='')}"
    )
    browser.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": []})  # from now on it must not
    browser.run("location.hash = '#node=nobody'")
    opened(browser, "nobody")
    assert "There is no such node in this graph" in browser.one("#panel").text
    browser.click("#copy")
    wait(browser, lambda: len(browser.texts("#copied input")) == 1)
    assert browser.run("return document.querySelector('#copied input').value.endsWith('#node=nobody')")
    browser.run("location.hash = '#node=100%'")  # cut off in the middle of a sign
    opened(browser, "100%")
    assert browser.complaints() == []


def downloaded(page: Page, folder: Path) -> list[dict[str, str]]:
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    page.click("#download")
    path = folder / "nodes.csv"
    for _ in range(100):
        if path.exists() and not list(folder.glob("*.crdownload")):
            break
        time.sleep(0.05)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def agree(lines: list[dict[str, str]], rows: list[dict[str, Any]], columns: list[str]) -> None:
    assert len(lines) == len(rows) > 0
    assert list(lines[0]) == [*columns, "label", "part"]
    for line, row in zip(lines, rows, strict=True):
        for name, text in line.items():
            if isinstance(row[name], float):
                assert float(text) == pytest.approx(row[name], rel=1e-4, abs=1e-6)
            else:
                assert text == {True: "true", False: "false", None: ""}.get(row[name], str(row[name]))


def test_what_is_downloaded_is_what_the_table_says(page: Page, given: GraphPage, tmp_path: Path) -> None:
    rows = rows_of(given)
    page.click("#filters [data-filter=wrong]")
    find(page, "paper 1")
    page.click(page.header("#nodes-table", "EU")[0])
    mine = [row for row in rows if FILTERS["wrong"](row) and row["id"].startswith("paper 1")]
    assert page.one("#download").text == f"Download these {len(mine)} rows as CSV"
    agree(downloaded(page, tmp_path), sorted(mine, key=lambda row: -row["EU"]), given.table.column_names)
    assert page.complaints() == []


def test_by_keyboard_alone(page: Page, given: GraphPage) -> None:
    rows = rows_of(given)

    def to(test: str) -> None:
        for _ in range(150):
            page.press(Keys.TAB)
            if page.run(f"const a = document.activeElement; return {test}"):
                assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"no way by tabs to {test}")

    page.press(Keys.TAB, Keys.ENTER)  # to the nodes
    to("a.dataset.filter === 'flagged'")
    page.press(Keys.SPACE)
    mine = [row for row in rows if row["unfamiliar"] and row["beside"]]
    to("a.id === 'find'")
    page.press(mine[0]["id"])
    assert shown(page) == [mine[0]["id"]]
    to("a.matches('#nodes-table .node-link')")
    page.press(Keys.ENTER)
    opened(page, mine[0]["id"])
    to("a.matches('#panel .neighbours a')")
    page.press(Keys.ENTER)
    opened(page, rows[mine[0]["beside"][0]]["id"])
    assert page.run("return document.activeElement.id") == "close"
    page.press(Keys.ESCAPE)
    assert not is_open(page)
    assert page.run("return document.activeElement.textContent") == mine[0]["id"]
    assert "#node" not in page.driver.current_url


def test_hostile_text_is_only_text(browser: Page, tmp_path: Path) -> None:
    ids = [f'{HOSTILE}{k},\n"{k}' for k in range(60)]
    given = made(60, (HOSTILE, "ok", "'; alert(3); //"), ids)
    table = given.table.set_column(given.table.column_names.index("reasons"), "reasons", pa.array([HOSTILE] * 60))
    summary = {**given.summary, "method": HOSTILE, "warnings": [HOSTILE], "diagnosis": {HOSTILE: 0.5}}
    write_graph_page(replace(given, title=HOSTILE, table=table, summary=summary), tmp_path / "x.html")
    browser.open(tmp_path / "x.html")
    assert browser.one("h1").get_property("textContent") == HOSTILE
    assert HOSTILE in browser.one("#lead").get_property("textContent")
    assert browser.texts("#warnings li") == [HOSTILE]
    assert shown(browser) == ids[:25]
    browser.click("#nodes-table tbody td:nth-child(2)")
    opened(browser, ids[0])
    assert browser.texts("#panel .reasons") == [HOSTILE]
    assert browser.texts("#panel .intervals th")[0].startswith(HOSTILE)
    browser.click("#panel .neighbours a")
    wait(browser, lambda: browser.texts("#panel h2") != [f"Node {ids[0]}"])
    assert browser.texts("#panel h2")[0].removeprefix("Node ") in ids
    browser.press(Keys.ESCAPE)
    agree(downloaded(browser, tmp_path), rows_of(replace(given, table=table)), table.column_names)
    assert browser.run("return document.querySelectorAll('main img, header img, dialog img, main script').length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert browser.complaints() == []  # a script that tried to run would be named here: the policy forbids it


def test_without_calibration_the_page_says_what_to_do(browser: Page, tmp_path: Path) -> None:
    given = made(120, credal=False, calibrated=False)
    write_graph_page(given, tmp_path / "x.html")
    browser.open(tmp_path / "x.html")
    assert "The model is not calibrated, so no node can be flagged" in browser.one("#lead").text
    for place in ("#unfamiliar-note", "#figures .empty"):
        assert "Keep some labelled nodes out of training for calibration" in browser.one(place).text
    assert browser.attributes("#filters button", "data-filter") == ["all", "wrong"]
    assert browser.texts("#figures h3") == ["p-values", "Probability of the class and neighbours"]
    find(browser, "17")
    rows = rows_of(given)
    assert shown(browser)[0] == "17"
    browser.click("#nodes-table .node-link")
    opened(browser, "17")
    bars = browser.attributes("#panel .interval", "width")
    expected = [100 * max(rows[17][f"p_{name}"], 0.002) for name in NAMES]
    assert [float(width.rstrip("%")) for width in bars] == pytest.approx(expected, abs=0.01)
    assert browser.texts("#panel .reasons") == []  # nothing is said of nodes that nobody could flag
    first = rows[rows[17]["beside"][0]]
    assert f"probability {first['probability']:.2f}" in browser.texts("#panel .neighbours li")[0]
    browser.press(Keys.ESCAPE)
    find(browser, " ")
    agree(downloaded(browser, tmp_path), rows, given.table.column_names)


def test_numbers_that_javascript_cannot_hold_stay_ids(browser: Page, tmp_path: Path) -> None:
    ids = [2**60 + k for k in range(80)]
    write_graph_page(made(80, ids=ids), tmp_path / "x.html")
    browser.open(tmp_path / "x.html")
    find(browser, str(ids[3]))
    assert shown(browser) == [str(ids[3])]
    browser.click("#nodes-table .node-link")
    opened(browser, str(ids[3]))


def test_narrow_window_has_no_sideways_scroll(page: Page) -> None:
    page.screen(400, 800)
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.run("return document.documentElement.scrollWidth") == 400
    inner, outer = page.run("const box = document.querySelector('.nodes'); return [box.scrollWidth, box.clientWidth]")
    assert inner > outer  # it is the table's own box that scrolls
    assert page.run("return Math.max(...[...document.querySelectorAll('#alarms tr')].map(r => r.offsetHeight))") < 120
    assert page.run("return document.querySelector('#figures svg').clientWidth") <= 370
    page.click("#nodes-table .node-link")
    wait(page, lambda: is_open(page))
    assert page.run("const p = document.getElementById('panel'); return p.scrollWidth <= p.clientWidth")
    left, right = page.run(
        "const r = document.getElementById('panel').getBoundingClientRect(); return [r.left, r.right]"
    )
    assert 0 <= left < right <= 400


def test_dark_and_light_are_legible(page: Page) -> None:
    page.run("location.hash = arguments[0]", f"#node={quote(IDS[0])}")
    wait(page, lambda: is_open(page))
    places = "h1 #lead #warnings%h2 .card%h3 .card%.note .card%.node-link #facts-list%dt #classes%.std #alarms%td"
    places += " #nodes-table%.node-link #nodes-table%.tag #filters%[aria-pressed=true] #download figcaption summary"
    places += " #panel%h2 #panel%dt #panel%.neighbours%a #panel%.reasons #copy"
    page.check_legible([place.replace("%", " ") for place in places.split()])


# ---------------------------------------------------------------- graphs larger than a page


def test_a_large_graph_is_sampled_and_the_page_says_so(browser: Page, tmp_path: Path) -> None:
    given = made(1000)
    write_graph_page(given, tmp_path / "x.html", most=60)
    nodes, rows = embedded(tmp_path / "x.html")["nodes"], rows_of(given)
    held = [int(name) for name in nodes["id"][: nodes["held"]]]
    assert len(held) == len(set(held)) == 60
    by_p = [row["node"] for row in sorted(rows, key=lambda row: row["p_value"]) if row["unfamiliar"]]
    assert set(by_p[:30]) <= set(held)  # half of the page
    train = set(given.parts["train"].tolist())
    assert given.nearest is not None
    near = list(dict.fromkeys(given.nearest(torch.tensor(by_p[:30])).reshape(-1).tolist()))[:15]
    assert set(near) <= set(held) & train
    browser.open(tmp_path / "x.html")
    assert "60 of 1,000 nodes: the flagged ones" in browser.one("#nodes-note").text
    assert "All are in predictions.parquet" in browser.one("#nodes-note").text
    in_page = len(set(by_p) & set(held))
    assert in_page < len(by_p)
    assert f"{len(by_p)} nodes flagged" in browser.one("#unfamiliar-note").text
    assert f" {in_page} of them are in this page" in browser.one("#unfamiliar-note").text
    first = next(i for i in held if 0 < len(set(rows[i]["beside"]) & set(held)) < len(rows[i]["beside"]))
    browser.run(f"location.hash = '#node={first}'")
    opened(browser, str(first))
    entries = browser.run(
        "return [...document.querySelector('#panel .neighbours').children].map("
        "li => [li.firstChild.tagName, parseInt(li.textContent.replace('flagged: ', ''))])"
    )
    beside = rows[first]["beside"]
    expected = [["A", node] for node in beside if node in held] + [
        ["SPAN", node] for node in beside if node not in held
    ]
    assert entries == expected
    other = next(node for kind, node in entries if kind == "SPAN")
    browser.run(f"location.hash = '#node={other}'")  # mentioned
    opened(browser, str(other))
    assert f"Predicted: {rows[other]['class']}, width {rows[other]['widest']:.2f}" in browser.one("#panel").text
    mentioned = {int(name) for name in nodes["id"]}
    absent = next(row["node"] for row in rows if row["node"] not in mentioned)
    browser.run(f"location.hash = '#node={absent}'")
    opened(browser, str(absent))
    assert "not among the 60 of 1,000 nodes in this page; predictions.parquet" in browser.one("#panel").text
    assert browser.complaints() == []


def test_the_figures_are_of_all_nodes(browser: Page, tmp_path: Path) -> None:
    given = made(1000)
    write_graph_page(given, tmp_path / "x.html", most=60)
    rows, figures = rows_of(given), embedded(tmp_path / "x.html")["figures"]
    groups = {
        "degree": lambda row: len(row["beside"]).bit_length(),  # 0, 1, 2 to 3, 4 to 7, ...
        "coverage": lambda row: int(10 * row["coverage"]),
    }
    for fact, group_of in groups.items():
        naive: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            naive.setdefault(group_of(row), []).append(row)
        for one, (_, mine) in zip(figures[fact], sorted(naive.items()), strict=True):
            assert one["nodes"] == len(mine)
            x = [len(row["beside"]) if fact == "degree" else row["coverage"] for row in mine]
            assert [one["x"], one["from"], one["to"]] == pytest.approx([np.median(x), min(x), max(x)], rel=1e-3)
            for name, key in (("measure", "widest"), ("EU", "EU")):
                spread = np.quantile([row[key] for row in mine], [0.1, 0.25, 0.5, 0.75, 0.9])
                assert one[name] == pytest.approx(spread, rel=1e-3)
    new = [row for row in rows if row["part"] is None]
    for kind, flagged in (("flagged", True), ("others", False)):
        bars = [0] * 20
        for row in new:
            if row["unfamiliar"] == flagged:
                bars[(round(100 * row["p_value"]) - 1) // 5] += 1
        assert figures["p_values"][kind] == bars
    browser.open(tmp_path / "x.html")
    titles = [f"{value} and {fact}" for fact in ("neighbours", "coverage") for value in ("Widest interval", "EU")]
    assert browser.texts("#figures h3") == ["p-values", *titles]
    for kind in ("flagged", "others"):
        heights = browser.attributes(f"#figures figure:first-child > svg rect.{kind}", "data-nodes")
        assert [int(text) for text in heights] == [number for number in figures["p_values"][kind] if number]


def test_the_page_is_bounded(tmp_path: Path) -> None:
    given = made(
        20000, [f"class number {k}" for k in range(10)], [f"https://example.org/paper/{k}" for k in range(20000)]
    )
    source = torch.randint(20000, (2, 400_000), generator=torch.Generator().manual_seed(0))
    write_graph_page(replace(given, graph=given.graph.replace(edge_index=source)), tmp_path / "x.html")
    data = embedded(tmp_path / "x.html")
    assert data["nodes"]["held"] == 3000
    assert max(map(len, data["nodes"]["neighbours"])) == 20
    assert (tmp_path / "x.html").stat().st_size < 5_000_000


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    given = made(50)
    for wrong, message in (
        (replace(given, table=given.table.slice(1)), "the table has 49 rows and the graph 50 nodes: predict all"),
        (replace(given, table=given.table.drop(["class", "probability"])), "a page needs a method that classifies"),
        (replace(given, class_names=("high", "low", "middle")), "where lower_high or p_high is expected"),
        (replace(given, table=given.table.set_column(1, "class", pa.array(["x"] * 50))), "not among class_names"),
    ):
        with pytest.raises(ValueError, match=message):
            write_graph_page(wrong, tmp_path / "x.html")
    with pytest.raises(ValueError, match="most=3: a page holds at least 10"):
        write_graph_page(given, tmp_path / "x.html", most=3)
    assert list(tmp_path.iterdir()) == []
