"""The page below a path prefix of a proxy, Debian's nginx, in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.configs.programs import answered, free_port, program, running
from tests.server.browser import browser
from tests.server.live import Live

TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
CONF = """
daemon off; {user} pid {folder}/pid; error_log {folder}/log;
events {{ }}
http {{
    {paths} access_log off;
    server {{
        listen 127.0.0.1:{port};
        location /llm/ {{ proxy_pass {url}/; proxy_http_version 1.1; proxy_buffering off; }}
    }}
}}
"""


@pytest.fixture(scope="module")
def below(tiny: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, below nginx's `/llm/`; nothing else is there."""
    nginx = program("nginx", "nginx-light")
    folder, port = tmp_path_factory.mktemp("prefix"), free_port()
    paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    user = "user root;" if os.getuid() == 0 else ""
    conf = Path(folder / "nginx.conf")
    conf.write_text(CONF.format(folder=folder, port=port, url=tiny.url, paths=paths, user=user))
    with running(nginx, "-c", str(conf)) as process:
        url = f"http://127.0.0.1:{port}"
        assert answered(f"{url}/health", process).status_code == 404
        yield f"{url}/llm/"


def shows(window: Chrome, selector: str, text: str) -> None:
    WebDriverWait(window, 30).until(lambda _: text in window.find_element(By.CSS_SELECTOR, selector).text)


def test_the_page_its_feed_and_its_chat_work_below_a_prefix(below: str) -> None:
    with browser() as window:
        window.get(below)
        shows(window, "#model", "tiny")  # by the feed
        shows(window, "#state", "ready")
        most = window.find_element(By.ID, "most")
        most.clear()
        most.send_keys("8")
        window.find_element(By.ID, "say").send_keys("Hello", Keys.ENTER)
        WebDriverWait(window, 30).until(lambda _: window.find_elements(By.CSS_SELECTOR, ".figures"))
        shows(window, ".figures", "tokens ·")
        fetched = window.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        names = [name for name in fetched if not name.startswith("data:")]
        assert {"page.css", "page.js", "words.js", "completions"} <= {name.rsplit("/", 1)[1] for name in names}
        assert all(name.startswith(below) for name in names)
        assert window.get_log("browser") == []  # type: ignore[no-untyped-call]
