"""The page in a real browser, in front of the real server with a tiny model."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.conftest import model_folder
from tests.server.browser import browser
from tests.server.live import Live, serving

LONG = {"prompt": [10] * 300, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
# Whether the picture has a pixel of a colour of the style sheet.
HAS_COLOUR = """
const style = getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim();
const wanted = [1, 3, 5].map((i) => parseInt(style.slice(i, i + 2), 16));
const canvas = document.getElementById("lanes");
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
for (let i = 0; i < data.length; i += 4) if (wanted.every((value, k) => data[i + k] === value)) return true;
return false;
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    cache = str(tmp_path_factory.mktemp("cache"))
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache, "--served-model-name", "tiny") as server:
        yield server


@pytest.fixture(scope="module")
def window(live: Live) -> Iterator[Chrome]:
    with browser() as chrome:
        chrome.get(live.url)
        yield chrome


def at(window: Chrome, id_: str) -> WebElement:
    return window.find_element(By.ID, id_)


def until(window: Chrome, id_: str, text: str) -> None:
    """Wait for an element to show a text."""
    WebDriverWait(window, 30).until(lambda _: text in at(window, id_).text)


def test_it_says_what_is_loaded_and_fetches_nothing_from_elsewhere(window: Chrome, live: Live) -> None:
    until(window, "model", "tiny")
    until(window, "state", "ready")
    assert "32 slots of 2,048 tokens" in at(window, "room").text
    fetched = window.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert {"page.css", "page.js", "batch.js", "chat.js"} <= {name.rsplit("/", 1)[1] for name in fetched}
    assert all(name.startswith((live.url, "data:")) for name in fetched)


@contextmanager
def asked_again_and_again(live: Live) -> Iterator[None]:
    """Three requests are under way as long as the block lasts."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            live.post("/v1/completions", LONG)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_lanes_appear_while_requests_run_and_the_figures_count_them(window: Chrome, live: Live) -> None:
    def shows(colour: str) -> None:
        WebDriverWait(window, 30).until(lambda _: window.execute_script(HAS_COLOUR, colour))

    with asked_again_and_again(live):
        for colour in ("--prefill", "--decode", "--decode-tint"):
            shows(colour)
        WebDriverWait(window, 30).until(lambda _: at(window, "r-running").text[0] in "123")
        WebDriverWait(window, 30).until(lambda _: float(at(window, "r-tokens").text) > 0)
    until(window, "r-running", "0 of 32")


def test_a_chat_streams_and_its_lane_is_marked_as_yours(window: Chrome) -> None:
    ActionChains(window).move_to_element(at(window, "lanes")).perform()
    window.find_element(By.TAG_NAME, "body").send_keys("/")  # leads to the chat
    say = window.switch_to.active_element
    assert say.get_attribute("id") == "say"
    most = at(window, "most")
    most.clear()
    most.send_keys("20")
    say.send_keys("Say something", Keys.ENTER)
    WebDriverWait(window, 30).until(lambda _: "tokens ·" in window.find_elements(By.CSS_SELECTOR, ".figures")[-1].text)
    assert window.find_element(By.CSS_SELECTOR, ".you").text == "Say something"
    assert window.find_elements(By.CSS_SELECTOR, ".it")[-1].text
    assert "first after" in window.find_elements(By.CSS_SELECTOR, ".figures")[-1].text
    assert window.execute_script(HAS_COLOUR, "--mine")
    assert window.execute_script(HAS_COLOUR, "--prefill")


def test_the_server_s_refusal_is_shown_in_the_conversation(window: Chrome) -> None:
    most = at(window, "most")
    most.clear()
    most.send_keys("0")
    window.execute_script("document.getElementById('ask').noValidate = true")
    at(window, "say").send_keys("Hello", Keys.ENTER)
    WebDriverWait(window, 30).until(lambda _: "max_tokens" in at(window, "talk").text)


def test_the_arrow_keys_tell_each_step_in_words(window: Chrome) -> None:
    lanes = at(window, "lanes")
    window.execute_script("arguments[0].focus()", lanes)
    ActionChains(window).send_keys(Keys.ARROW_LEFT).perform()
    until(window, "cursor", "rows of decode")
    last = at(window, "cursor").text
    ActionChains(window).send_keys(Keys.ARROW_LEFT).perform()
    assert at(window, "cursor").text != last


# Keeps what the page sends next in `window.sent`.
LISTEN = "const ask = window.fetch; window.fetch = (url, how) => { window.sent = how.body; return ask(url, how); };"


@pytest.mark.parametrize(("heat", "sent"), [("", None), ("0", 0), ("0.5", 0.5)])
def test_a_chat_leaves_the_temperature_to_the_model_unless_one_is_chosen(
    window: Chrome, heat: str, sent: float | None
) -> None:
    window.execute_script(LISTEN + "document.getElementById('most').value = 20")
    turns = len(window.find_elements(By.CSS_SELECTOR, ".figures"))
    window.execute_script("document.getElementById('heat').value = arguments[0]", heat)
    at(window, "say").send_keys("Say something", Keys.ENTER)
    WebDriverWait(window, 30).until(lambda _: len(window.find_elements(By.CSS_SELECTOR, ".figures")) > turns)
    WebDriverWait(window, 30).until(lambda _: "tokens ·" in window.find_elements(By.CSS_SELECTOR, ".figures")[-1].text)
    assert json.loads(window.execute_script("return window.sent")).get("temperature") == sent


def test_every_control_has_a_name_for_a_screen_reader(window: Chrome) -> None:
    controls = window.find_elements(By.CSS_SELECTOR, "button, input, textarea, canvas[tabindex], section, [role]")
    unnamed = [c.get_attribute("outerHTML") for c in controls if c.is_displayed() and not c.accessible_name]
    assert [html for html in unnamed if html and 'role="status"' not in html] == []


def test_the_browser_has_nothing_to_complain_about(window: Chrome) -> None:
    said = [entry["message"] for entry in window.get_log("browser")]  # type: ignore[no-untyped-call]
    assert [message for message in said if "400 (Bad Request)" not in message] == []


def test_it_fits_a_phone_and_follows_a_dark_scheme(live: Live) -> None:
    with browser(320, 640, "dark") as phone:
        phone.get(live.url)
        until(phone, "model", "tiny")
        assert phone.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        colour = "return getComputedStyle(document.body).backgroundColor"
        dark = phone.execute_script(colour)
        at(phone, "theme").click()
        assert (dark, phone.execute_script(colour)) == ("rgb(15, 19, 21)", "rgb(246, 246, 242)")


def test_where_the_api_wants_a_key_the_page_asks_for_it(tmp_path: Path) -> None:
    arguments = [str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--served-model-name", "tiny"]
    with serving(*arguments, "--api-key", "sesame") as server, browser() as window:
        window.get(server.url)
        for key, then in (("wrong", "does not know"), ("sesame", "")):
            WebDriverWait(window, 30).until(lambda _: at(window, "key-value").is_displayed())
            assert at(window, "model").text == "connecting"
            value = at(window, "key-value")
            value.clear()
            value.send_keys(key, Keys.ENTER)
            if then:
                until(window, "key-note", then)
        until(window, "model", "tiny")


def test_it_can_be_left_out(tmp_path: Path) -> None:
    with serving(str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--no-page") as server:
        assert server.get("/").status_code == 404
        assert server.get("/page/page.js").status_code == 404
