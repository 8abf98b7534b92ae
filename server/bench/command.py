"""The command line of `paceline bench`. What measures is imported when it is asked for."""

import sys
from typing import Any

import click
from rich.console import Console

from scheduler.errors import EngineError
from scheduler.model.importing import ImportFailed
from server.bench.options import KERNEL_ROWS, PEERS, BenchError, BenchOptions, parse_counts, parse_peers
from server.config import ConfigError
from server.paths import UserPath


@click.command()
@click.argument("model", required=False)
@click.option("--shape", help="Measure a random model of this shape instead: phi3-mini or tiny.")
@click.option(
    "--concurrency", "-c", default="1,2,4,8,16,32", show_default=True, help="Requests at once, each a measurement."
)
@click.option("--kernels", is_flag=True, help="Measure each operator alone instead, beside what the machine can do.")
@click.option("--rows", help="Of a step of --kernels; requests at once of a shape, which has 1, 2, 3 and 4 always.")
@click.option("--prompt-tokens", type=click.IntRange(2), default=60, show_default=True, help="Of each request.")
@click.option("--new-tokens", type=click.IntRange(2), default=48, show_default=True, help="Of each request.")
@click.option("--repeats", "-n", type=click.IntRange(1), default=5, show_default=True, help="Medians are over these.")
@click.option("--peers", default="auto", show_default=True, help=f"auto, none or some of {', '.join(PEERS)}.")
@click.option("--threads", type=click.IntRange(1), help="Of everyone's model run.  [default: the cores granted]")
@click.option("--cache-dir", type=UserPath(), help="Where imported models are kept, as for serve.")
@click.option("--output", "-o", type=UserPath(file_okay=False), help="Write bench.json and svg here.")
@click.option("--json", type=UserPath(dir_okay=False), help="Write all figures here.")
def bench(**given: Any) -> None:  # noqa: ANN401 - click's
    """Measure MODEL, as for serve, beside its peers on this machine; without MODEL, SmolLM2-135M-Instruct.

    paceline over HTTP, its engine alone, onnxruntime-genai with a Generator per request and with a static batch, and
    those that are installed of OpenVINO GenAI (paceline[bench]), llama-server, vllm and onnx-genai do the same work in
    turn, each in a process of its own. The machine should be idle.
    """
    from server.bench.session import (  # noqa: PLC0415 - only this command needs it
        Consoles,
        measure,
        measure_kernels,
        measure_shape,
    )

    told = Console(stderr=True)
    consoles = Consoles(told, Console(width=None if sys.stdout.isatty() else 160))
    try:
        options = parsed(given)
        flags = {"threads": given["threads"], "cache_dir": given["cache_dir"] and str(given["cache_dir"])}
        if given["kernels"]:
            measure_kernels(options, flags, consoles)
        elif given["shape"]:
            measure_shape(given["shape"], options, flags, consoles)
        else:
            measure(options, {"model": given["model"], **flags}, consoles)
    except (BenchError, ConfigError, EngineError, ImportFailed) as error:
        told.print(f"[bold red]paceline:[/bold red] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        told.print("interrupted")
        sys.exit(130)


def parsed(given: dict[str, Any]) -> BenchOptions:
    """What the flags mean; BenchError where they do not go together."""
    if given["shape"] and given["model"]:
        raise BenchError("give either a MODEL or a --shape")
    if given["kernels"] and (given["shape"] or given["model"]):
        raise BenchError("--kernels goes with no model: it measures the operators alone")
    if given["rows"] and not (given["shape"] or given["kernels"]):
        raise BenchError("--rows goes with --shape and --kernels; a model's requests at once are --concurrency")
    requests = given["rows"] or (KERNEL_ROWS if given["kernels"] else given["concurrency"])
    peers, must_run = parse_peers(given["peers"])
    return BenchOptions(
        concurrency=parse_counts(requests),
        prompt_tokens=given["prompt_tokens"],
        new_tokens=given["new_tokens"],
        repeats=given["repeats"],
        peers=peers,
        must_run=must_run,
        output=given["output"],
        json=given["json"],
    )
