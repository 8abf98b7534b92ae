"""The command line of `paceline load`. What measures is imported when it is asked for."""

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec
from rich.console import Console

from server.load.drive import Extent, Level
from server.load.figures import LIMITS, limit
from server.load.lengths import lengths
from server.load.settings import Settings
from server.paths import UserPath


class Parsed(click.ParamType[Any]):
    """A value with a reader of its own, whose ValueError says what is wrong."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Read it, unless it is read already."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _levels(text: str) -> list[float]:
    values = [float(part) for part in text.split(",")]
    if min(values) <= 0:
        raise ValueError("a load is above 0")
    return values


def _field(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no field: write name=value, the value as JSON")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not 0 <= int(low) < int(high):
        raise ValueError("write LOW-HIGH, as in 100-1000")
    return int(low), int(high)


LENGTHS = Parsed("LENGTH", lengths)


@click.command()
@click.argument("url")
@click.option(
    "--concurrency",
    "-c",
    type=Parsed("N[,N...]", _levels),
    help="Requests at once (closed loop); several make a run each.",
)
@click.option(
    "--rate",
    "-r",
    type=Parsed("R[,R...]", _levels),
    help="Requests a second, whatever the server does (open loop, Poisson).",
)
@click.option(
    "--burstiness",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="Below 1 the open loop's arrivals come in bursts.  [default: 1]",
)
@click.option(
    "--requests", "-n", type=click.IntRange(1), help="Requests of a run.  [default: 10 for each at once, or 100]"
)
@click.option("--seconds", "-t", type=click.FloatRange(0, min_open=True), help="Send no more after so long.")
@click.option(
    "--warmup", type=click.IntRange(0), default=2, help="Requests before each run that do not count.  [default: 2]"
)
@click.option(
    "--prompt",
    type=LENGTHS,
    default="128",
    help="Tokens of a prompt: 128, 64-256, normal(200, 50) or lognormal(200, 0.7).  [default: 128]",
)
@click.option("--answer", type=LENGTHS, default="64", help="Tokens of an answer, likewise.  [default: 64]")
@click.option(
    "--shared", type=click.IntRange(0), default=0, help="Tokens that all prompts begin with, for prefix caches."
)
@click.option(
    "--form",
    type=click.Choice(["ids", "text", "chat"]),
    default="ids",
    help="Prompts as token ids or words for completions, or as chats.  [default: ids]",
)
@click.option(
    "--ids",
    type=Parsed("LOW-HIGH", _range),
    default="100-1000",
    help="Where random token ids are from.  [default: 100-1000]",
)
@click.option(
    "--prompts",
    type=UserPath(exists=True, dir_okay=False),
    help="A file of prompts: a line each, or JSON with prompt or messages.",
)
@click.option(
    "--end-token/--ignore-eos",
    "end_token",
    default=False,
    help="Whether an answer may end before its length.  [default: no, by ignore_eos]",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    type=Parsed("NAME=JSON", _field),
    help="A further field of every request.  [repeatable]",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    type=Parsed("NAME=SECONDS", limit),
    help=f"What goodput asks for: {', '.join(LIMITS)}, as in ttft=0.5 or itl=80ms.  [repeatable]",
)
@click.option("--model", default="", help="The model's name.  [default: the first that the server lists]")
@click.option("--api-key", envvar="OPENAI_API_KEY", default="", help="The key to send.  [env: OPENAI_API_KEY]")
@click.option(
    "--ca",
    type=UserPath(exists=True, dir_okay=False),
    help="Certificates of authorities to trust: PEM.",
)
@click.option("--insecure", is_flag=True, help="Take any certificate.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    help="Seconds that one request may take.  [default: 600]",
)
@click.option("--seed", type=int, default=0, help="The same seed asks the same.")
@click.option("--json", type=UserPath(dir_okay=False), help="Write the figures here.")
@click.option("--html", type=UserPath(dir_okay=False), help="Write a report with plots here.")
def load(**given: Any) -> None:  # noqa: ANN401 - click's
    """Put load on the server at URL and tell how it took it.

    URL is any server with OpenAI's completions or chats. Neither its tokenizer nor a model hub is needed.
    """
    from server.load.session import measure  # noqa: PLC0415 - only this command needs it

    told = Console(stderr=True)
    try:
        sys.exit(measure(settings(given), told, Console(width=None if sys.stdout.isatty() else 120)))
    except (ConnectionError, ValueError) as error:
        told.print(f"[bold red]paceline:[/bold red] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)


def settings(given: dict[str, Any]) -> Settings:
    """What the flags mean; raises UsageError where they contradict each other."""
    if (given["concurrency"] is None) == (given["rate"] is None):
        raise click.UsageError("give either --concurrency (closed loop) or --rate (open loop)")
    levels = [Level(concurrency=int(n)) for n in given["concurrency"] or ()]
    levels += [Level(rate=rate) for rate in given["rate"] or ()]
    requests = given["requests"]
    if requests is None and given["seconds"] is None:
        requests = 10 * max(level.concurrency or 10 for level in levels)
    extent = Extent(requests, given["seconds"], given["warmup"], given["burstiness"], given["seed"])
    ignore = {} if given["end_token"] else {"ignore_eos": True}
    same = ("url", "model", "form", "prompt", "answer", "shared", "ids", "prompts", "timeout", "json", "html")
    return Settings(
        key=given["api_key"],
        verify=given["ca"] or not given["insecure"],
        levels=tuple(levels),
        extent=extent,
        fields={**ignore, **dict(given["fields"])},
        limits=dict(given["limits"]),
        **{name: given[name] for name in same},
    )
