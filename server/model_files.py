"""Small files of a model folder."""

from pathlib import Path
from typing import Any

import msgspec

from scheduler.errors import ModelFolderError


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is no file.

    Raises:
        ModelFolderError: it is there, and is no JSON object.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
