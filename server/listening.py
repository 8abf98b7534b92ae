"""The sockets that a server listens on, taken before it loads a model: what stands in their way is told at once.

Nothing of somebody else's is taken away: neither a port, nor a file, nor the socket of a server that lives. Knows
neither HTTP nor TLS.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from server.addresses import Address, addresses
from server.config import ConfigError, Options

_BACKLOG = 2048
_PATH_BYTES = 107
"""Of a Unix socket's path at the most, by the size of the kernel's structure."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""What stands in the way of one of several addresses of a name, as ::1 of localhost where there is no IPv6."""


class Listening:
    """Sockets that nobody else can take. Clients of a port are refused until `open`, those of a path wait for it."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = list(sockets)

    @property
    def port(self) -> int:
        """That of all addresses."""
        return int(self._sockets[0].getsockname()[1])

    def open(self) -> list[socket.socket]:
        """Let clients in.

        Raises:
            ConfigError: another took a port all the same.
        """
        for one in self._sockets:
            # Only now: the kernel would let others bind the port too while nobody listens, and without it a later
            # start would have to wait for the last connections of this one to be forgotten.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.listen(_BACKLOG)
            except OSError as error:
                raise ConfigError(f"{one.getsockname()} cannot be opened ({error.strerror}): choose another") from error
        return self._sockets


@contextmanager
def listening(options: Options) -> Iterator[Listening]:
    """Take what the options name, for the length of a block; a Unix socket is removed behind it.

    Raises:
        ConfigError: it is taken, or cannot be had.
    """
    with ExitStack() as taken:
        if options.uds:
            yield Listening([taken.enter_context(_unix_socket(Path(options.uds)))])
        else:
            yield Listening([taken.enter_context(one) for one in _ports(options.host, options.port)])


def _ports(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, which all have the same port; addresses that are not here are left out."""
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in addresses(host):
        chosen = sockets[0].getsockname()[1] if sockets and not port else port
        try:
            sockets.append(_bound(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            problem = error
            if error.errno not in _ABSENT:
                break
    else:
        if sockets:
            return sockets
    for one in sockets:
        one.close()
    assert problem is not None  # there is at least one address
    raise ConfigError(_why(host, port, problem)) from problem


def _bound(family: int, address: Address) -> socket.socket:
    """A socket with the address for itself; OSError where it cannot be had."""
    try:
        return _bind(family, address, reuse=False)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    return _bind(family, address, reuse=True)  # past connections that the kernel remembers, not past a server


def _bind(family: int, address: Address, *, reuse: bool) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one


def _why(host: str, port: int, error: OSError) -> str:
    named = host or "all addresses"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {named} is taken: stop who listens there, or choose another with --port (0: a free one)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host = {host!r} is no address of this machine: choose another, or 0.0.0.0 for all"
    if error.errno == errno.EACCES:
        return f"port {port} is not for this user ({error.strerror}): choose one above 1023"
    return f"port {port} of {named} cannot be listened on ({error.strerror}): choose another --host or --port"


@contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    """A socket at the path, removed behind the block unless another has come to be there.

    It takes clients at once, who wait: a path has no owner by which a second start could tell this one from a dead one.
    """
    _make_way(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with one:
        try:
            one.bind(str(path))
            own = path.lstat()
            path.chmod(0o666)
            one.listen(_BACKLOG)
        except OSError as error:
            raise ConfigError(_why_not_there(path, error)) from error
        try:
            yield one
        finally:
            with suppress(OSError):
                if os.path.samestat(own, path.lstat()):
                    path.unlink()


def _make_way(path: Path) -> None:
    """Remove a dead server's socket; ConfigError where there is anything else."""
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise ConfigError(
            f"uds = {path} is longer than {_PATH_BYTES} bytes, the most for a socket: choose a shorter path"
        )
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"uds = {path} cannot be used ({error}): choose another path") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"uds = {path} is there already and is no socket: remove it, or choose another path")
    if _answers(path):
        raise ConfigError(f"uds = {path} is the socket of a server that runs: stop it, or choose another path")
    try:
        path.unlink()
    except OSError as error:
        raise ConfigError(f"uds = {path} is a dead server's and cannot be removed ({error.strerror})") from error


def _answers(path: Path) -> bool:
    """Whether a socket has an owner; one that cannot be asked has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setblocking(False)  # a full backlog is an answer too
        try:
            one.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def _why_not_there(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"uds = {path}: there is no folder {path.parent}; make it, or choose another path"
    return f"uds = {path} cannot be made ({error.strerror}): choose another path"
