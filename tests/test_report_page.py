"""The report page in a real browser: by keyboard, on a phone, in the dark, without a network."""

import contextlib
import pathlib
import re
import socket
import time

import numpy as np
import pytest
from selenium.webdriver.common import by, keys

from hnclip_jax.analysis import boost, geometry
from hnclip_jax.analysis.report import charts, cosines, galleries
from hnclip_jax.commands import report_looking
from hnclip_jax.data import lists
from tests import browser as browser_lib
from tools import report_runs

HOSTILE = """<script>document.title = "broken"</script>"'><img src="x" onerror="alert(1)"> <b>"""
PICTURES = 100
FOCUSABLE = "a[href], button, summary, [tabindex='0']"
HERE = pathlib.Path(__file__).parent / "page_checks.js"


@pytest.fixture(scope="module")
def page(tmp_path_factory, hnclip):
    """The page of three made runs and 100 pictures; only the embeddings are made up."""
    folder = tmp_path_factory.mktemp("page")
    runs = report_runs.write(
        folder,
        pictures=PICTURES,
        size=(120, 90),
        benchmark="docci_goal",
        prefix=f"{HOSTILE} {'x' * 200} ",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_looking, "look", lambda *_: _looked(folder / "test.json"))
        ran = hnclip("report", *runs, f"--out={folder / 'report'}")
    assert ran.code == 0, ran.err
    return folder / "report" / "index.html"


def _looked(path):
    pictures = lists.read(path)
    captions = [record.captions[0] for record in pictures.records]
    text = np.random.default_rng(0).normal(size=(PICTURES, 6)) + 1
    text = (text / np.linalg.norm(text, axis=1, keepdims=True)).astype(np.float32)
    seen = geometry.measure(text, np.arange(PICTURES))
    measured = cosines.Measured("a", seen, boost.predict(seen.mean, seen.std, scale=20, gamma=0.5))
    items = []
    for number in range(0, PICTURES, 4):
        told = number % 8 == 0
        row = [
            galleries.Picture(n, f"0.{n}", captions[n], ((0, 9),), told=told, right=n == number)
            for n in range(number, number + 4)
        ]
        items.append(galleries.Item(f"Caption {number}", captions[number], (("row", tuple(row)),)))
    gallery = galleries.Gallery("A gallery", "Of pictures.", tuple(items))
    return report_looking.Looked(pictures, [measured], ["A note."], [gallery])


@pytest.fixture(scope="module")
def chromium():
    """One browser for all tests of this file."""
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(browser_lib.start())
        except browser_lib.Missing as error:
            pytest.fail(str(error), pytrace=False)
        yield found


@pytest.fixture
def opened(chromium, page):
    """The page, just opened, as it is for most: light, on a desktop."""
    browser_lib.emulate(chromium)
    browser_lib.open_page(chromium, page)
    return chromium


def _wait(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def _loaded(chromium):
    return chromium.execute_script(
        "return [...document.images].filter(i => i.complete && i.naturalWidth > 0).length"
    )


def _unfold(chromium):
    chromium.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")


def test_captions_do_nothing_but_stand_there(opened):
    assert opened.title.startswith("Report on run_0")
    assert HOSTILE in opened.find_element(by.By.CSS_SELECTOR, ".item .caption").text
    assert opened.execute_script("return document.images.length") == PICTURES
    assert opened.execute_script("return document.scripts.length") == 1


def test_pictures_load_from_disk_as_they_come_into_view(opened):
    assert _wait(lambda: opened.execute_script("return document.readyState") == "complete")
    first = _loaded(opened)
    assert first < PICTURES / 2
    height = opened.execute_script("return document.documentElement.scrollHeight")
    for top in range(0, height, 700):
        opened.execute_script("window.scrollTo({top: arguments[0], behavior: 'instant'})", top)
        opened.execute_async_script("requestAnimationFrame(() => arguments[0]())")
    assert _wait(lambda: _loaded(opened) == PICTURES), _loaded(opened)
    asked = browser_lib.requests(opened)
    assert len(asked) == PICTURES + 1
    assert all(address.startswith("file:") for address in asked)
    assert browser_lib.complaints(opened) == []


def _column(table, place):
    """Returns (text, value it is sorted by) of the cells of a column, from the top."""
    return table.parent.execute_script(
        "return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]])"
        ".map(c => [c.textContent, c.dataset.value ?? null])",
        table,
        place,
    )


def _natural(text):
    """Returns what sorts a text as people do: "5 %" before "20 %"."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"(\d+)", text.lower())
    ]


def _sorts(opened, act):
    table = opened.find_element(by.By.CSS_SELECTOR, "#results table")
    name, _, _, recall = table.find_elements(by.By.CSS_SELECTOR, "thead th")
    buttons = [header.find_element(by.By.TAG_NAME, "button") for header in (name, recall)]
    act(buttons[1])
    assert recall.get_attribute("aria-sort") == "ascending"
    found = [float(value) for _, value in _column(table, 3) if value]
    assert found == sorted(found)
    # Some papers report no such number, and one run has found all, which has three digits.
    assert (_column(table, 3)[-1][1], found[-1]) == (None, 100.0)
    act(buttons[1])
    assert recall.get_attribute("aria-sort") == "descending"
    values = [value for _, value in _column(table, 3)]
    found = [float(value) for value in values if value]
    assert found == sorted(found, reverse=True)
    assert all(value is None for value in values[len(found) :])
    said = opened.find_element(by.By.ID, "said").get_attribute("textContent")
    assert said == "Text to image, docci_goal: sorted by R@10, highest first"
    act(buttons[0])
    assert name.get_attribute("aria-sort") == "ascending"
    assert recall.get_attribute("aria-sort") is None
    names = [text for text, _ in _column(table, 0)]
    assert names == sorted(names, key=_natural)
    assert names != sorted(names, key=str.lower)
    assert browser_lib.complaints(opened) == []


def test_tables_sort_by_a_click(opened):
    _sorts(opened, lambda button: button.click())


@pytest.mark.parametrize("key", [keys.Keys.ENTER, keys.Keys.SPACE], ids=["enter", "space"])
def test_tables_sort_by_the_keyboard(opened, key):
    _sorts(opened, lambda button: button.send_keys(key))


def _walk(opened):
    """Returns the numbers of the elements that Tab reaches, in order, and of all that it must."""
    wanted = opened.execute_script(
        "document.querySelectorAll('*').forEach((e, n) => e.dataset.n = n);"
        "document.querySelector('.skip').focus();"
        "return [...document.querySelectorAll(arguments[0])]"
        ".filter(e => e.checkVisibility()).map(e => e.dataset.n)",
        FOCUSABLE,
    )
    reached, here = [], "return document.activeElement.dataset.n"
    while (number := opened.execute_script(here)) not in reached and len(reached) < len(wanted) + 5:
        reached.append(number)
        browser_lib.press_tab(opened)
    # Behind the last one comes the window, and that is the body.
    return [
        n for n in reached if n != opened.execute_script("return document.body.dataset.n")
    ], wanted


def test_tab_reaches_every_control_in_the_order_of_the_page(opened):
    reached, wanted = _walk(opened)
    assert reached == wanted
    assert len(wanted) > 30


def test_what_unfolds_is_reached_too(opened):
    summary = opened.find_element(by.By.CSS_SELECTOR, "#curves summary")
    summary.send_keys(keys.Keys.ENTER)
    assert opened.execute_script("return arguments[0].parentElement.open", summary)
    _unfold(opened)
    reached, wanted = _walk(opened)
    assert reached == wanted


def test_the_first_stop_skips_to_the_content(opened):
    browser_lib.press_tab(opened)
    link = opened.switch_to.active_element
    assert link.text == "Skip to the content"
    assert opened.execute_script("return arguments[0].getBoundingClientRect().top", link) >= 0
    link.send_keys(keys.Keys.ENTER)
    assert opened.switch_to.active_element.tag_name == "main"
    browser_lib.press_tab(opened)
    inside = "return document.querySelector('main').contains(document.activeElement)"
    assert opened.execute_script(inside)


@pytest.mark.parametrize("selector", ["nav a", "th button", "summary", ".scroll"])
def test_focus_is_seen(opened, selector):
    element = opened.find_element(by.By.CSS_SELECTOR, selector)
    browser_lib.press_tab(opened)  # From now on the keyboard is in use.
    opened.execute_script("arguments[0].focus()", element)
    style = opened.execute_script(
        "const s = getComputedStyle(arguments[0]); return [s.outlineStyle, s.outlineWidth]", element
    )
    assert style == ["solid", "3px"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened, scheme):
    browser_lib.emulate(opened, prefers_color_scheme=scheme)
    _unfold(opened)
    texts, lines = opened.execute_script(HERE.read_text() + "return [texts(), colours()]")
    assert len(texts) > 100
    assert len(lines) == 2 * charts.STYLES
    assert [text for text in texts if text["contrast"] < 4.5] == []
    assert [line for line in lines if line["contrast"] < 3] == []
    (page,) = {text["page"] for text in texts}
    assert page == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 23, 28)"}[scheme]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(opened, scheme):
    browser_lib.emulate(opened, prefers_color_scheme=scheme)
    with browser_lib.narrow(opened, 360):
        _unfold(opened)
        widths = "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
        assert opened.execute_script(widths) == [360, 360]
        wide = opened.execute_script(HERE.read_text() + "return wider()")
        assert wide == []


def test_everything_has_a_name(opened):
    _unfold(opened)
    found = browser_lib.accessible(opened)
    roles = [role for role, _ in found]
    for role, count in (("main", 1), ("navigation", 1), ("banner", 1), ("contentinfo", 1)):
        assert roles.count(role) == count, role
    named = ("image", "img", "button", "link", "region", "table", "DisclosureTriangle", "heading")
    assert {*named[2:]} <= {*roles}
    assert roles.count("image") + roles.count("img") >= PICTURES + 5
    assert [(role, name) for role, name in found if role in named and not name.strip()] == []


def test_motion_only_for_those_who_like_it(opened):
    how = "return getComputedStyle(document.documentElement).scrollBehavior"
    browser_lib.emulate(opened, prefers_reduced_motion="no-preference")
    assert opened.execute_script(how) == "smooth"
    browser_lib.emulate(opened, prefers_reduced_motion="reduce")
    assert opened.execute_script(how) == "auto"


def test_the_policy_keeps_the_network_out(opened):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        opened.execute_script(
            "window.refused = [];"
            "addEventListener('securitypolicyviolation', e => refused.push(e.violatedDirective));"
            "new Image().src = arguments[0] + 'a.png';"
            "fetch(arguments[0]).catch(() => 0)",
            f"http://127.0.0.1:{server.getsockname()[1]}/",
        )
        assert _wait(lambda: opened.execute_script("return window.refused.length") == 2)
        assert opened.execute_script("return refused.sort()") == ["connect-src", "img-src"]
        with pytest.raises(BlockingIOError):
            server.accept()
