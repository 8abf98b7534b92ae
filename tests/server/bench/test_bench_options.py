"""What the flags of `paceline bench` mean, and what is refused."""

import pytest
from click.testing import CliRunner

from server.bench.options import PEERS, BenchError, parse_counts, parse_peers
from server.cli import main


def test_counts_are_ascending_and_each_once() -> None:
    assert parse_counts("8,1,2,8") == (1, 2, 8)


@pytest.mark.parametrize("text", ["", "one", "1,,2", "0", "-1", "1,2000", "1.5"])
def test_what_is_no_list_of_counts_is_refused(text: str) -> None:
    with pytest.raises(BenchError):
        parse_counts(text)


def test_automatic_peers_may_fail_and_named_ones_may_not() -> None:
    assert parse_peers("auto") == (PEERS, False)
    assert parse_peers("none") == ((), False)
    assert parse_peers("openvino,og-batch,openvino") == (("openvino", "og-batch"), True)


def test_an_unknown_peer_is_told_with_the_known_ones() -> None:
    with pytest.raises(BenchError, match="og-threads"):
        parse_peers("tgi")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model", "--shape", "tiny"], "either a MODEL or a --shape"),
        (["model", "--rows", "1"], "--rows goes with --shape"),
        (["--shape", "huge"], "phi3-mini"),
        (["--peers", "tgi"], "no peer"),
        (["--concurrency", "many"], "list of numbers"),
    ],
)
def test_flags_that_do_not_go_together_are_told_in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
