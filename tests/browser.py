"""A real browser for the tests of the pages, and short words for what a reader does with it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = "headless=new no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update"


class Page:
    """A page in the browser, and short words for what a reader does with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        self.screen(1280)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # forgets what was before
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def attributes(self, selector: str, name: str) -> list[str]:
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.getAttribute(arguments[1]))", selector, name
        )

    def click(self, what: Any) -> None:
        """Click on what a selector or an element stands for, in the middle of the window: the bar covers its top."""
        element = self.one(what) if isinstance(what, str) else what
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def press(self, *keys: str) -> None:
        for key in keys:
            webdriver.ActionChains(self.driver).send_keys(key).perform()

    def choose(self, **values: str) -> None:
        for name, value in values.items():
            Select(self.one(f"#{name}")).select_by_visible_text(value)

    def screen(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def header(self, box: str, label: str) -> Any:
        """The button in the head of a column, and the order its column says it has."""
        heads = self.driver.find_elements(By.CSS_SELECTOR, f"{box} thead th")
        (head,) = [one for one in heads if one.text.split("\n")[0].rstrip(" ↑↓") == label]
        return head.find_element(By.TAG_NAME, "button"), lambda: head.get_attribute("aria-sort")

    def requests(self) -> set[str]:
        """Addresses that were asked for since the page was opened, without what follows ``#``."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {address.partition("#")[0] for address in sent} - {"data:,"}

    def check_legible(self, places: Iterable[str]) -> None:
        """Texts at these selectors have a contrast of 4.5 or more in the light and in the dark scheme."""
        script = (
            "let box = document.querySelector(arguments[0]); const style = getComputedStyle(box);"
            "const text = style.fill !== 'rgb(0, 0, 0)' && box.closest('svg') ? style.fill : style.color;"
            "while (getComputedStyle(box).backgroundColor === 'rgba(0, 0, 0, 0)') box = box.parentElement;"
            "return [text, getComputedStyle(box).backgroundColor]"
        )
        for scheme, bright in (("light", True), ("dark", False)):
            self.scheme(scheme)
            for place in places:
                assert contrast(*self.run(script, place)) >= 4.5, (scheme, place)
            paper = luminance(self.run("return getComputedStyle(document.body).backgroundColor"))
            assert paper > 0.8 if bright else paper < 0.05

    def shown_nodes(self) -> list[int]:
        return [int(node) for node in self.attributes("#node-box tbody tr", "data-node")]


@contextmanager
def running(profile: Path) -> Iterator[Page]:
    """A browser with a profile of its own."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), "disable-sync", "hide-scrollbars", f"user-data-dir={profile}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        try:
            yield Page(driver)
        finally:
            driver.quit()


def embedded(path: Path) -> Any:
    """The data in a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), flags=re.S)
    return json.loads(found)


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = np.array([float(part) for part in re.findall(r"[\d.]+", colour)[:3]])
    parts = parts if colour.startswith("color(srgb") else parts / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
