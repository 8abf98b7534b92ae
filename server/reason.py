"""Why a command failed, as one sentence. Knows which errors are words for people already."""

import traceback
from pathlib import Path

from scheduler.errors import EngineError
from scheduler.model.importing import ImportFailed
from server.config import ConfigError


def reason(error: Exception) -> str:
    """What the error says, in one line; of one that nobody foresaw also where it came from, to be reported."""
    said = " ".join(str(error).split())
    if isinstance(error, (ConfigError, EngineError, ImportFailed)):
        return said
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}; see that it is there and that this user may use it"
    if isinstance(error, MemoryError):
        return f"the memory does not suffice {f'({said})' if said else ''}: free some, or choose a smaller model"
    at = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(at.filename).name}, line {at.lineno}"
    return f"an error that was not foreseen, {type(error).__name__} ({said}; {place}): please report it"
