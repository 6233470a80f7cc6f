"""The report page of three runs and 500 pictures: its size, and how a browser opens it, as a table.

    python -m tools.bench_report
    python -m tools.bench_report --out=page --screenshots=pictures

Runs and pictures are made (see report_runs.py), the page is what `hnclip report` writes of them.
It is opened from disk in a headless Chromium: seconds to the load event, the best and the worst of
some times; seconds to scroll through it, a screen at a time, and the longest of these frames.
Needs selenium, Chromium and its driver.
"""

import pathlib
import tempfile
import time

import numpy as np
from absl import app, flags
from selenium import webdriver

from hnclip_jax import cli
from tests import browser as browser_lib
from tools import report_runs

_RUNS = flags.DEFINE_integer("runs", 3, "runs to make", lower_bound=1)
_PICTURES = flags.DEFINE_integer("pictures", 500, "pictures on the page", lower_bound=10)
_TIMES = flags.DEFINE_integer("times", 5, "times that the page is opened", lower_bound=1)
_OUT = flags.DEFINE_string("out", "", "keep the page in this folder")
_SCREENSHOTS = flags.DEFINE_string("screenshots", "", "write screenshots into this folder")

_SCROLL = """
const done = arguments[0], frames = [];
let last = performance.now();
function next(now) {
  frames.push(now - last);
  last = now;
  const before = scrollY;
  scrollBy({top: innerHeight, behavior: "instant"});
  if (scrollY === before && frames.length > 2) {
    done(frames);
  } else {
    requestAnimationFrame(next);
  }
}
requestAnimationFrame(next);
"""


def main(argv: list[str]) -> None:
    """Makes the page, opens it, prints the table."""
    del argv
    with tempfile.TemporaryDirectory() as folder:
        # More than are shown, since no pair of captions comes twice.
        made = 2 * _PICTURES.value
        runs = report_runs.write(pathlib.Path(folder), runs=_RUNS.value, pictures=made)
        out = pathlib.Path(_OUT.value or pathlib.Path(folder, "report")).absolute()
        began = time.perf_counter()
        words = [*map(str, runs), f"--out={out}", f"--pictures={_PICTURES.value}", "--overwrite"]
        if cli.main(["report", *words]):
            raise SystemExit(1)
        rows = [("seconds to write it, with embedding", f"{time.perf_counter() - began:.1f}")]
        rows += _size(out)
        with browser_lib.start() as browser:
            rows += _opened(browser, out / "index.html")
            if _SCREENSHOTS.value:
                _screenshots(browser, out / "index.html", pathlib.Path(_SCREENSHOTS.value))
    for what, value in rows:
        print(f"{what:<44}{value:>14}")


def _size(out: pathlib.Path) -> list[tuple[str, str]]:
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return [
        ("MB in all", f"{size / 1e6:.2f}"),
        ("MB of index.html", f"{(out / 'index.html').stat().st_size / 1e6:.2f}"),
        ("files of pictures", str(len(files) - 1)),
    ]


def _opened(browser: webdriver.Chrome, page: pathlib.Path) -> list[tuple[str, str]]:
    loads, frames, scrolled = [], [], []
    browser.set_script_timeout(120)
    for _ in range(_TIMES.value):
        browser_lib.open_page(browser, page)
        loads.append(_load_seconds(browser))
        frames += (times := browser.execute_async_script(_SCROLL))
        scrolled.append(sum(times) / 1000)
    images = "return document.images.length"
    loaded = "return [...document.images].filter(i => i.complete && i.naturalWidth).length"
    return [
        ("pictures on it", str(browser.execute_script(images))),
        ("of these loaded after scrolling", str(browser.execute_script(loaded))),
        ("elements", f"{browser.execute_script('return document.all.length'):,}"),
        ("seconds to the load event", f"{min(loads):.2f} to {max(loads):.2f}"),
        ("seconds to scroll through", f"{min(scrolled):.2f} to {max(scrolled):.2f}"),
        ("milliseconds of a frame, median", f"{np.median(frames):.0f}"),
        ("milliseconds of a frame, 99th percentile", f"{np.percentile(frames, 99):.0f}"),
        ("milliseconds of a frame, longest", f"{max(frames):.0f}"),
        ("messages in the console", str(len(browser_lib.complaints(browser)))),
        ("requests that are no files", str(_others(browser))),
    ]


def _load_seconds(browser: webdriver.Chrome) -> float:
    """Returns the seconds from the start of the navigation to the end of the load event."""
    return browser.execute_script(
        "return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"
    )


def _others(browser: webdriver.Chrome) -> int:
    return sum(not address.startswith("file:") for address in browser_lib.requests(browser))


def _screenshots(browser: webdriver.Chrome, page: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the page as it begins, and at each section: on a desktop, in the dark, on a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = ("results", "curves", "geometry", "galleries", "settings", "provenance")
    for scheme in ("light", "dark"):
        browser_lib.emulate(browser, prefers_color_scheme=scheme)
        browser_lib.open_page(browser, page)
        _shoot(browser, folder, scheme, ("top", *sections))
    with browser_lib.narrow(browser):
        browser_lib.open_page(browser, page)
        _shoot(browser, folder, "phone", ("top", *sections))


def _shoot(
    browser: webdriver.Chrome, folder: pathlib.Path, name: str, sections: tuple[str, ...]
) -> None:
    for section in sections:
        browser.execute_script(
            "const e = document.getElementById(arguments[0]);"
            "scrollTo({top: e ? e.offsetTop : 0, behavior: 'instant'})",
            section,
        )
        time.sleep(0.5)
        browser.save_screenshot(str(folder / f"report_{name}_{section}.png"))


if __name__ == "__main__":
    app.run(main)
