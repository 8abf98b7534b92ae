"""What the variables of the environment say about the options. Knows which options there are; not what they mean.

A variable of an orchestrator's is not the user's word: Kubernetes gives every container `PACELINE_PORT=tcp://...`,
`PACELINE_SERVICE_HOST` and more for a Service called paceline, whether the container wants them or not.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "PACELINE_"
CONFIG = f"{PREFIX}CONFIG"
"""Names the configuration file, and is no option."""

_LINK = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)
_LINK_NAME = re.compile(
    r"\w*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Told:
    """What the environment gives: values by option, and sentences about variables that give none."""

    values: dict[str, Any]
    notes: tuple[str, ...]


def told(environ: Mapping[str, str], options: Collection[str], lists: Collection[str]) -> Told:
    """Read the variables; an empty one is not set, as in files that list all of them.

    Args:
        environ: by variable.
        options: the names there are.
        lists: those of options that are lists; commas separate their entries.
    """
    ours = {name: value.strip() for name, value in environ.items() if name.startswith(PREFIX) and name != CONFIG}
    given = {name: value for name, value in ours.items() if value}
    links = {name for name, value in given.items() if _is_link(name, value, options)}
    known = {name for name in given if _option(name) in options} - links
    values = {_option(name): _entries(given[name]) if _option(name) in lists else given[name] for name in known}
    unknown = sorted(given.keys() - known - links)
    notes = [*([_links_note(links, ours)] if links else []), *(_unknown_note(name, options) for name in unknown)]
    return Told(values, tuple(notes))


def _option(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def _entries(value: str) -> list[str]:
    return [entry for part in value.split(",") if (entry := part.strip())]


def _is_link(name: str, value: str, options: Collection[str]) -> bool:
    """Whether Kubernetes set the variable for a Service. The option `port` has the name of one, but not its value."""
    if _option(name) in options:
        return name.endswith("PORT") and _LINK.match(value) is not None
    return _LINK_NAME.fullmatch(name) is not None


def _links_note(links: Collection[str], environ: Mapping[str, str]) -> str:
    port = f"{PREFIX}PORT"
    named = ", ".join(f"{name}={environ[name]}" if name == port else name for name in sorted(links))
    return (
        f"{named} {'are' if len(links) > 1 else 'is'} ignored: Kubernetes sets such variables for a Service, unless "
        "the pod has enableServiceLinks: false; --port or the configuration file chooses the port"
    )


def _unknown_note(name: str, options: Collection[str]) -> str:
    (nearest,) = difflib.get_close_matches(_option(name), options, 1, cutoff=0.0)
    return f"{name} names no option and is ignored; the nearest is {PREFIX}{nearest.upper()}"
