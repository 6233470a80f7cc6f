"""A headless Chromium with an empty profile, for tests and tools of the report page."""

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome import service

_NEEDED = ("chromium", "chromedriver")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Missing(RuntimeError):
    """There is no Chromium, or no driver for it."""


@contextlib.contextmanager
def start(width: int = 1200, height: int = 900) -> Iterator[webdriver.Chrome]:
    """Yields a browser with a window of this size; it is ended behind the block.

    Raises:
      Missing: if it is not installed.
    """
    missing = [name for name in _NEEDED if not shutil.which(name)]
    if missing:
        raise Missing(
            f"the report page is looked at in a browser, but {' and '.join(missing)} cannot be "
            "found; apt-get install chromium chromium-driver"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="hnclip-browser-") as profile:
        for flag in (*_FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = service.Service(shutil.which("chromedriver"))
        browser = webdriver.Chrome(options, driver)
        try:
            yield browser
        finally:
            browser.quit()


def open_page(browser: webdriver.Chrome, page: pathlib.Path) -> None:
    """Opens a page from disk; what was logged before is forgotten."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(page.as_uri())


def requests(browser: webdriver.Chrome) -> list[str]:
    """Returns the addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def complaints(browser: webdriver.Chrome) -> list[str]:
    """Returns what stands in the console since the last call, of any level."""
    return [f"{entry['level']}: {entry['message']}" for entry in browser.get_log("browser")]


def press_tab(browser: webdriver.Chrome) -> None:
    """Presses Tab, ten times as fast as by send_keys."""
    key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    for kind in ("rawKeyDown", "keyUp"):
        browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, **key})


def emulate(browser: webdriver.Chrome, **features: str) -> None:
    """Sets media features: prefers_color_scheme="dark", say; none sets all back."""
    wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


@contextlib.contextmanager
def narrow(browser: webdriver.Chrome, width: int = 360, height: int = 740) -> Iterator[None]:
    """Makes the screen that of a phone within the block."""
    size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def accessible(browser: webdriver.Chrome) -> list[tuple[str, str]]:
    """Returns (role, name) of everything that a screen reader is told of."""
    nodes: list[dict[str, Any]] = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})[
        "nodes"
    ]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
