"""Every option, declared once: its type, default, range, group and help. File, environment and flags read these fields.

Later sources win: default, then the TOML file, then `PACELINE_...` variables, then flags. Nothing writes to the options
after they are loaded; what is found out about the model or the machine is another value.
"""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from scheduler.model.importing.manifest import KvCache
from server.environment import told
from server.logs import PARTS
from server.paths import NoHome, expanded
from server.sizes import SIZE


class ConfigError(Exception):
    """An option is unknown or out of range; the message names it, where it came from, and what would do."""


Level = Literal["debug", "info", "warning", "error"]


def _meta(group: str, help_: str, ge: float | None = None, le: float | None = None, *, secret: bool = False) -> Meta:
    return Meta(description=help_, extra={"group": group, "secret": secret, "path": False}, ge=ge, le=le)


def _path(group: str, help_: str) -> Meta:
    """A path, whose `~` is the home folder wherever it was written."""
    return Meta(description=help_, extra={"group": group, "secret": False, "path": True})


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `paceline serve` can be told."""

    model: Annotated[
        str,
        _path(
            "Model",
            "A folder of onnxruntime-genai, a GGUF file or a packed folder; empty fetches SmolLM2-135M-Instruct.",
        ),
    ] = ""
    served_model_name: Annotated[
        list[str], _meta("Model", "The name that clients use for the model; further ones are aliases.")
    ] = []
    generation_config: Annotated[
        Literal["auto", "openai"],
        _meta("Model", "What holds where a request is silent: auto is the model's own settings, or OpenAI's defaults."),
    ] = "auto"
    cache_dir: Annotated[
        str, _path("Model", "Where imported models are kept; empty is $XDG_CACHE_HOME/paceline or ~/.cache/paceline.")
    ] = ""
    context: Annotated[
        Annotated[int, Meta(ge=16)] | None,
        _meta(
            "Model",
            "Tokens of a request at the most, prompt and answer; unset is as the model and memory allow.",
        ),
    ] = None

    weights: Annotated[
        Literal["auto", "keep", "int8"],
        _meta("Import", "Linear layers: the source's own 4- and 8-bit blocks, or int8; auto keeps blocks."),
    ] = "auto"
    kv_cache: Annotated[KvCache, _meta("Import", "What keys and values are kept as; auto is float16.")] = "auto"

    memory: Annotated[
        Annotated[str, Meta(pattern=f"^({SIZE})?$")],
        _meta("Engine", "Memory for all, weights and cache, as in 2GiB; empty is 80% of what is free and granted."),
    ] = ""
    slots: Annotated[Annotated[int, Meta(ge=1)] | None, _meta("Engine", "Requests computed at once; unset is 32.")] = (
        None
    )
    prefix_reuse: Annotated[
        bool, _meta("Engine", "Whether prompts stay in memory for later ones that begin alike.")
    ] = True
    step_rows: Annotated[
        int, _meta("Engine", "Tokens of one step at the most: longer prompts are computed in chunks.", ge=16, le=8192)
    ] = 256
    target_itl: Annotated[
        float, _meta("Engine", "Milliseconds between a stream's tokens while prompts are read; 0 is no target.", ge=0)
    ] = 200.0
    threads: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        _meta("Engine", "Threads of the model run; unset is the cores that are really granted."),
    ] = None
    instruction_set: Annotated[
        Literal["auto", "avx512vnni", "avxvnni", "avx2", "portable"],
        _meta("Engine", "What the model run may use of the processor; auto is the best that it has."),
    ] = "auto"
    max_queue: Annotated[
        int, _meta("Engine", "Requests that may wait for a slot; more are answered with 429.", ge=0)
    ] = 256

    max_queue_seconds: Annotated[
        float, _meta("Engine", "Requests that would wait longer for a slot are answered with 429; 0 takes any.", ge=0)
    ] = 0.0

    host: Annotated[
        str, _meta("Server", "The address to listen on; 0.0.0.0 is all of IPv4, :: all of IPv6 and IPv4.")
    ] = "127.0.0.1"
    port: Annotated[int, _meta("Server", "The port to listen on; 0 takes a free one.", ge=0, le=65535)] = 8000
    uds: Annotated[str, _path("Server", "A Unix socket to listen on, instead of an address.")] = ""
    max_body: Annotated[int, _meta("Server", "Bytes of a request body at the most.", ge=1024)] = 16 * 2**20
    unknown_fields: Annotated[
        Literal["refuse", "warn"],
        _meta("Server", "What to do about a body's unknown field: answer 400, or log it and go on without it."),
    ] = "refuse"
    max_head: Annotated[int, _meta("Server", "Bytes of a request's line and headers at the most.", ge=1024)] = 65536
    max_connections: Annotated[
        int, _meta("Server", "Connections at once; more are answered with 503 and closed.", ge=1)
    ] = 1024
    receive_timeout: Annotated[
        float,
        _meta("Server", "Seconds that a connection may stay silent before or in the middle of a request.", ge=0.1),
    ] = 15.0
    drain_timeout: Annotated[
        float, _meta("Server", "Seconds that running requests have to finish after SIGTERM or Ctrl-C.", ge=0)
    ] = 30.0
    exit_on_failure: Annotated[
        bool, _meta("Server", "Whether to exit with status 1 when the engine cannot go on, for supervisors.")
    ] = False
    trusted_proxies: Annotated[
        list[str], _meta("Server", "Addresses or networks whose X-Forwarded-For and -Proto are believed.")
    ] = []
    page: Annotated[bool, _meta("Server", "Whether / shows the page with the chat and the live batch.")] = True

    api_key: Annotated[list[str], _meta("Access", "A key that clients must send; several may do.", secret=True)] = []
    api_key_file: Annotated[
        str, _path("Access", "A file of named, hashed keys; `paceline key NAME` makes its lines.")
    ] = ""
    isolate_keys: Annotated[
        bool, _meta("Access", "Whether prompts are reused only for requests with the same API key.")
    ] = False
    public_metrics: Annotated[bool, _meta("Access", "Whether /metrics is answered without a key.")] = False
    cors_origins: Annotated[
        list[str], _meta("Access", "Web origins whose pages may use the API, or * for every one.")
    ] = []
    ssl_certfile: Annotated[str, _path("Access", "The TLS certificate, with its chain: PEM.")] = ""
    ssl_keyfile: Annotated[str, _path("Access", "The TLS certificate's private key: PEM.")] = ""

    log_level: Annotated[Level, _meta("Logs", "The least severe message of the server that is logged.")] = "info"
    log_levels: Annotated[
        list[Annotated[str, Meta(pattern=f"^({'|'.join(PARTS)})=({'|'.join(get_args(Level))})$")]],
        _meta("Logs", f"Levels of single parts, as part=level; the parts are {', '.join(PARTS)}."),
    ] = []
    log_format: Annotated[Literal["text", "json"], _meta("Logs", "Lines for people, or one JSON object a line.")] = (
        "text"
    )
    otlp_endpoint: Annotated[
        str, _meta("Logs", "Where a trace of each request is sent, OTLP over HTTP; wants paceline[otel].")
    ] = ""


class Effective(msgspec.Struct, frozen=True):
    """The options in force, for each where its value came from, and notes of what was left out."""

    options: Options
    origins: dict[str, str]
    notes: tuple[str, ...] = ()


def load(flags: Mapping[str, Any], environ: Mapping[str, str], file: Path | None) -> Effective:
    """The options in force.

    Args:
        flags: what the command line gave, by field name; None is not given.
        environ: the environment, of which `PACELINE_<FIELD>` counts; see `server.environment`.
        file: a TOML file with fields at its top level.

    Raises:
        ConfigError: an option is unknown, of another type or out of range.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Options.__struct_fields__, "default")
    environment = told(environ, Options.__struct_fields__, LISTS)
    for origin, found in (
        (str(file), _from_file(file)),
        ("environment", environment.values),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ):
        _check(found, origin)
        values |= found | _expanded(found, origin, environ)
        origins |= dict.fromkeys(found, origin)
    return Effective(msgspec.convert(values, Options, strict=False), origins, environment.notes)


def _check(values: Mapping[str, Any], origin: str) -> None:
    for name, value in values.items():
        if name not in Options.__struct_fields__:
            near = difflib.get_close_matches(name, Options.__struct_fields__, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(Options.__struct_fields__)}"
            raise ConfigError(f"unknown option {name} ({origin}){hint}")
        try:
            msgspec.convert({name: value}, Options, strict=False)
        except msgspec.ValidationError as error:
            reason = str(error).split(" - at ", maxsplit=1)[0]
            raise ConfigError(f"{name} = {value!r} ({origin}): {reason}") from error


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the configuration file {file} cannot be read: {error}") from error


def _expanded(values: Mapping[str, Any], origin: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of the values that are paths, their `~` replaced."""
    try:
        return {name: expanded(values[name], environ) for name in PATHS & values.keys()}
    except NoHome as error:
        named = ", ".join(sorted(name for name in PATHS & values.keys() if values[name].startswith("~")))
        raise ConfigError(f"{named} ({origin}): {error}") from error


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 - whatever a field is annotated with
    return get_origin(get_args(annotation)[0]) is list


LISTS = {name for name, annotation in Options.__annotations__.items() if _is_list(annotation)}
"""Options that may be given several times; separated by commas in the environment."""

PATHS = {name for name, annotation in Options.__annotations__.items() if get_args(annotation)[-1].extra["path"]}
"""Options that are paths."""
