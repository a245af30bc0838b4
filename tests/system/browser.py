"""Pages, as a browser shows them (the fixture `driver`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def narrow(driver: Any, width: int) -> None:
    shown = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shown)


def opened(driver: Any, path: Path) -> float:
    """Open a page that must be right: the seconds until it is drawn."""
    for kind in ("browser", "performance"):
        driver.get_log(kind)  # what there was before
    driver.get(path.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    check_quiet(driver, path)
    timing = 'return performance.getEntriesByType("navigation")[0].loadEventEnd'
    return float(driver.execute_script(timing)) / 1e3


def check_quiet(driver: Any, path: Path) -> None:
    """It has said nothing on the console, and asked nobody for anything."""
    assert driver.get_log("browser") == []
    messages = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:") and url != path.as_uri()] == []


def all_of(driver: Any, selector: str) -> list[Any]:
    return driver.find_elements("css selector", selector)


def texts(driver: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    return list(driver.execute_script(script, selector))
