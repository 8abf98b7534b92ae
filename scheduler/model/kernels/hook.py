"""What hatchling calls before it packs: a wheel holds the operators' library, and says which machines that is for.

Knows nothing of compilers; not part of what is installed.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path("scheduler/model/kernels")


class KernelsHook(BuildHookInterface[Any]):
    """Builds the library beside its sources, for wheels and editable installs alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Make the library, and have it packed though git ignores it."""
        sys.path.insert(0, self.root)
        from scheduler.model.kernels import LIBRARY  # noqa: PLC0415 - found just now
        from scheduler.model.kernels.build import BuildError, build, target  # noqa: PLC0415

        try:
            here = target()
            build(Path(self.root) / HERE / LIBRARY, here)
        except BuildError as error:
            sys.exit(f"paceline: {error}")  # one sentence, where an exception would be a page
        build_data["artifacts"].append(f"/{HERE / LIBRARY}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{here.tag}"
