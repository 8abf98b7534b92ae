"""What the bench's client reads out of a stream that came in pieces."""

import msgspec

from server.bench.client import completion_request, read

PIECE = b'1f\r\ndata: {"choices":[{"index":0,"text":"%s","finish_reason":null}],"usage":null}\n\n\r\n'
LAST = b'2a\r\ndata: {"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":null}\n\n\r\n'
USAGE = b'2b\r\ndata: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}\n\n\r\n'
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def test_arrivals_are_of_pieces_of_text_and_tokens_are_what_the_server_counted() -> None:
    received = [b"HTTP/1.1 200 OK\r\n\r\n", PIECE % b"a", b": keep-alive\n\n", PIECE % b"b", LAST, USAGE + DONE]
    answer = read(received, [10.0, 10.5, 10.6, 11.0, 12.0, 13.0], 10.0)
    assert answer.tokens == 7
    assert answer.arrivals == [0.5, 1.0]


def test_pieces_that_come_together_are_one_arrival() -> None:
    answer = read([PIECE % b"a" + PIECE % b"b", PIECE % b"c"], [1.0, 2.0], 0.0)
    assert answer.arrivals == [1.0, 2.0]


def test_a_piece_in_two_parts_arrives_with_the_second() -> None:
    whole = PIECE % b"a"
    for cut in range(1, whole.index(b"\n\n") + 2):
        assert read([whole[:cut], whole[cut:]], [1.0, 2.0], 0.0).arrivals == [2.0]


def test_a_stream_that_is_an_error_has_no_tokens_and_keeps_the_body_to_be_told() -> None:
    body = b'HTTP/1.1 400 Bad Request\r\n\r\n{"error":{"message":"no"}}'
    answer = read([body], [1.0], 0.0)
    assert (answer.tokens, answer.arrivals, answer.body) == (0, [], body)


def test_a_server_that_gives_no_usage_has_sent_a_token_with_each_piece() -> None:
    received = [PIECE % b"a" + PIECE % b"b", PIECE % b"c", LAST + DONE]
    assert read(received, [1.0, 2.0, 3.0], 0.0).tokens == 3


def test_a_request_has_what_a_server_wants_besides() -> None:
    _, body = completion_request("once", 8, {"model": "measured"}).split(b"\r\n\r\n")
    assert msgspec.json.decode(body)["prompt"] == "once"
    assert msgspec.json.decode(body)["model"] == "measured"


def test_a_request_says_how_long_it_is() -> None:
    head, body = completion_request([1, 2, 3], 8).split(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert b'"ignore_eos":true' in body
