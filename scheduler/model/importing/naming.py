"""What a source is called where nobody names it. Knows paths alone.

A hub's cache keeps the folder of `org/name` as `models--org--name/snapshots/<hash>`, with links to its files: the hash
says nothing to anybody.
"""

from pathlib import Path

_HUB = "models--"
_INSIDE = ("snapshots/*", "*", "snapshots/*/*", "*/*", "snapshots/*/*/*")
"""Where a folder that is no model holds some: in a hub's cache, and in clones with a folder for each processor."""


def folder_name(folder: Path) -> str:
    """The name of a model's folder: `org/name` inside a hub's cache, whichever part of the model it holds."""
    for path in (folder.absolute(), folder.resolve()):
        for above, below in zip(path.parts, path.parts[1:-1], strict=False):
            if above.startswith(_HUB) and below == "snapshots":
                return above.removeprefix(_HUB).replace("--", "/")
    return folder.resolve().name


def cache_name(source: Path) -> str:
    """What the packed folder of a source begins with: a name for people, as one part of a path."""
    return folder_name(source).replace("/", "--") if source.is_dir() else source.name


def model_inside(folder: Path, marker: str) -> Path | None:
    """A folder some way below that is a model's, told by a file's name, for those who gave one too high up."""
    found = (path.parent for where in _INSIDE for path in folder.glob(f"{where}/{marker}"))
    return next(found, None)
