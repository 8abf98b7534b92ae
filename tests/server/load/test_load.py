"""The load generator against servers whose every byte is known, and the command against the real server."""

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from click.testing import CliRunner

from server.cli import main
from server.load.client import Client
from server.load.connection import Sample
from server.load.drive import Extent, Level, Run, drive
from server.load.figures import figures
from server.load.prompts import Ask
from server.load.session import target
from tests.conftest import model_folder
from tests.server.live import serving
from tests.server.load.sse_server import completion, listen, plain, stream

ASK = Ask("/v1/completions", b"{}")


def asked(answer: Callable[[], bytes | None], count: int = 1) -> list[Sample]:
    """What became of requests that a server answers so."""

    async def ask() -> list[Sample]:
        server, url = await listen(answer)
        client = Client(target(url, "", verify=True), timeout=1)
        samples = [await client.ask(ASK, 0.0) for _ in range(count)]
        client.close()
        server.close()
        return samples

    return asyncio.run(ask())


def test_every_piece_of_text_counts_and_the_server_s_own_counts_are_taken() -> None:
    (sample,) = asked(lambda: stream(completion(5)))
    assert (len(sample.times), sample.new_tokens, sample.prompt_tokens) == (5, 5, 7)
    assert (sample.finish, sample.error) == ("length", "")
    assert sample.sent <= sample.times[0] <= sample.times[-1] <= sample.ended


def test_without_usage_the_pieces_are_the_tokens() -> None:
    (sample,) = asked(lambda: stream([*completion(5)[:-2], "[DONE]"]))
    assert sample.new_tokens == 5


def test_a_chat_s_first_chunk_with_only_a_role_is_no_token() -> None:
    deltas = [{"role": "assistant", "content": ""}, {"content": "a"}, {"reasoning_content": "b"}, {}]
    chunks = [json.dumps({"choices": [{"delta": delta, "finish_reason": None}]}) for delta in deltas]
    end = json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    (sample,) = asked(lambda: stream([*chunks, end, "[DONE]"]))
    assert len(sample.times) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\n{}", "HTTP 429"),
        (stream(completion(3)[:2]), "the stream ended too early"),
        (stream([*completion(3)[:2], '{"error": {"message": "no"}}']), "an error in the stream"),
        (stream(["{"]), "an event that is no JSON"),
        (stream(completion(3))[:-40], "timeout"),
        (b"good morning\r\n", "cut off"),
        (None, "cut off"),
    ],
)
def test_what_goes_wrong_is_told_by_kind(answer: bytes | None, error: str) -> None:
    (sample,) = asked(lambda: answer)
    assert sample.error == error


def test_a_server_that_is_not_there_is_told_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(target(f"127.0.0.1:{port}", "", verify=True), timeout=5)
    assert asyncio.run(client.ask(ASK, 0.0)).error.startswith("no connection")


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    reply = stream(completion(2))
    answers = iter([reply, None, reply])
    first, second = asked(lambda: next(answers), 2)
    assert (first.error, second.error) == ("", "")


def run(level: Level, extent: Extent, send: Callable[[Ask, float], Sample]) -> Run:
    async def sent(ask: Ask, due: float) -> Sample:
        await asyncio.sleep(0)
        return send(ask, due)

    def asks() -> Iterator[Ask]:
        while True:
            yield ASK

    result = Run(level)
    asyncio.run(drive(result, asks(), sent, extent))
    return result


def test_a_run_sends_as_many_as_it_is_told_and_does_not_count_the_warm_up() -> None:
    sent: list[float] = []

    def send(_: Ask, due: float) -> Sample:
        sent.append(due)
        return Sample(due)

    for level in (Level(concurrency=3), Level(rate=1e5)):
        sent.clear()
        assert len(run(level, Extent(requests=10, seconds=None, warmup=2), send).samples) == 10
        assert len(sent) == 12


def test_the_open_loop_s_gaps_have_the_mean_and_the_spread_that_were_asked_for() -> None:
    for burstiness in (1.0, 0.25):
        extent = Extent(requests=2000, seconds=None, warmup=0, burstiness=burstiness)
        samples = run(Level(rate=1e6), extent, lambda _, due: Sample(due)).samples
        dues = [sample.due for sample in samples]
        gaps = [later - earlier for earlier, later in zip(sorted(dues), sorted(dues)[1:], strict=False)]
        mean = sum(gaps) / len(gaps)
        variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        assert mean == pytest.approx(1e-6, rel=0.15)
        assert variance / mean**2 == pytest.approx(1 / burstiness, rel=0.3)


def sample(times: Sequence[float], ended: float, error: str = "") -> Sample:
    return Sample(0.0, 0.25, list(times), ended, prompt_tokens=10, new_tokens=len(times), finish="stop", error=error)


def test_figures_are_what_a_person_would_work_out() -> None:
    samples = [sample([1, 2, 3], 3.5), sample([2, 4], 4), sample([9], 9, "HTTP 503"), sample([], 1, "HTTP 503")]
    found = figures(Run(Level(concurrency=2), begun=0, ended=5, samples=samples), {"ttft": 1.5, "itl": 1.5})
    assert (found.completed, found.good, found.errors) == (2, 1, {"HTTP 503": 2})
    assert (found.output_tokens_per_second, found.input_tokens_per_second, found.goodput) == (1, 4, 0.2)
    assert (found.ttft.mean, found.ttft.p50, found.ttft.max, found.ttft.count) == (1.5, 1.5, 2, 2)
    assert found.itl.mean == pytest.approx(4 / 3)
    assert found.itl.count == 3
    assert (found.tpot.mean, found.e2e.max, found.late.max) == (1.5, 4, 0.25)


@pytest.fixture(scope="module")
def instant() -> Iterator[str]:
    """The URL of a server that answers 20 tokens at once."""
    command = [sys.executable, "-m", "tests.server.load.sse_server", "20"]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def load(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["load", *arguments])
    return result.exit_code, result.output


def test_the_report_holds_every_level_and_fetches_nothing(instant: str, tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    status, shown = load(instant, "-c", "1,4", "-n", "20", "--limit", "ttft=1", *files)
    assert status == 0, shown
    report = json.loads((tmp_path / "a.json").read_text())
    assert [(level["completed"], level["output_tokens"]) for level in report["runs"]] == [(20, 400)] * 2
    html = (tmp_path / "a.html").read_text()
    assert html.count("<svg") == 7
    assert "4 at once" in html
    for fetched in ("src=", "href=", "@import", "url("):
        assert fetched not in html
    assert "4 at once" in shown


def test_an_open_loop_run_shows_its_table(instant: str) -> None:
    status, shown = load(instant + "/v1", "-r", "500", "-n", "50", "--form", "chat")
    assert status == 0, shown
    assert "50 completed, 0 failed" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--concurrency"),
        (["-c", "1", "-r", "1"], "--concurrency"),
        (["-c", "0"], "above 0"),
        (["-c", "1", "--prompt", "long"], "no length"),
        (["-c", "1", "--limit", "speed=1"], "no limit"),
        (["-c", "1", "--field", "top_k"], "no field"),
    ],
)
def test_what_makes_no_sense_is_refused(instant: str, arguments: list[str], says: str) -> None:
    status, shown = load(instant, *arguments)
    assert status == 2
    assert says in shown


def test_a_url_that_leads_nowhere_is_told_in_a_line() -> None:
    for url, says in (("ftp://here", "no http"), ("http://127.0.0.1:1", "no connection")):
        status, shown = load(url, "-c", "1")
        assert status == 1
        assert says in shown


def test_the_real_server_is_loaded_with_ids_words_chats_and_a_file_of_prompts(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text('The class\n{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}\n')
    with serving(str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--api-key", "k") as server:
        common = [server.url, "-c", "4", "-n", "8", "--prompt", "5-9", "--answer", "6", "--ids", "10-300"]
        common += ["--api-key", "k", "--json", str(tmp_path / "a.json")]
        for form in ("ids", "text", "chat"):
            status, shown = load(*common, "--form", form, "--shared", "3")
            assert status == 0, shown
            (measured,) = json.loads((tmp_path / "a.json").read_text())["runs"]
            assert (measured["completed"], measured["output_tokens"]) == (8, 48)
            if form == "ids":
                assert 8 * 8 <= measured["input_tokens"] <= 8 * 12
        status, shown = load(*common, "--prompts", str(prompts))
        assert status == 0, shown
        (measured,) = json.loads((tmp_path / "a.json").read_text())["runs"]
        assert measured["output_tokens"] == 4 * 6 + 4 * 2
        refused = load(*common[:9], "--api-key", "wrong")
        assert "401" in refused[1]


def test_plain_replies_are_read_by_the_client() -> None:
    async def get() -> bytes:
        server, url = await listen(lambda: plain({"tokens": [1]}))
        client = Client(target(url, "", verify=True), timeout=5)
        reply = await client.get("/tokenize", b"{}")
        server.close()
        return reply

    assert json.loads(asyncio.run(get())) == {"tokens": [1]}
