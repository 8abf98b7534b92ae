import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.wire import tidy, without_upgrade


@pytest.mark.parametrize(
    ("target", "tidied"),
    [
        (b"/", b"/"),
        (b"//", b"/"),
        (b"/v1/models", b"/v1/models"),
        (b"/v1/models/", b"/v1/models"),
        (b"//v1///models//", b"/v1/models"),
        (b"/v1/models/?a=//b/", b"/v1/models?a=//b/"),
        (b"/v1/requests/a%2F%2Fb/cancel", b"/v1/requests/a%2F%2Fb/cancel"),
        (b"http://host:80/v1//models/?x", b"/v1/models?x"),
        (b"HTTP://host", b"/"),
        (b"http://host?x", b"/?x"),
        (b"*", b"*"),
    ],
)
def test_a_path_has_single_slashes_and_none_at_its_end(target: bytes, tidied: bytes) -> None:
    assert tidy(target) == tidied


@given(st.binary())
def test_a_tidy_target_stays_as_it_is(target: bytes) -> None:
    assert tidy(tidy(target)) == tidy(target)


class Parsed:
    """What httptools makes of a head."""

    def __init__(self, head: bytes) -> None:
        self.headers: dict[bytes, bytes] = {}
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(head)
        self.line = parser.get_method(), parser.get_http_version()
        self.upgrades = parser.should_upgrade()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name] = value


@given(st.lists(st.sampled_from([b"Upgrade", b"upgrade", b"HTTP2-Settings", b"keep-alive"])))
def test_a_head_without_its_offer_to_upgrade_is_otherwise_the_same(connection: list[bytes]) -> None:
    headers = [(b"host", b"a"), (b"connection", b",".join(connection)), (b"upgrade", b"h2c"), (b"content-length", b"3")]
    again = Parsed(without_upgrade(b"POST", b"/x?y", "1.1", headers))
    assert again.line == (b"POST", "1.1")
    assert not again.upgrades
    kept = [token for token in connection if token.lower() != b"upgrade"]
    assert again.headers == {b"host": b"a", b"content-length": b"3", b"connection": b", ".join(kept)}
