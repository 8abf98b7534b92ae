"""What a source is called where nobody names it. Knows paths alone.

A hub's cache keeps the folder of `org/name` as `models--org--name/snapshots/<hash>`, with links to its files: the hash
says nothing to anybody.
"""

from pathlib import Path

_HUB = "models--"


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
