"""The container file's steps, run one by one on this machine: no engine is needed to see that they work."""

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import DEVNULL, run

from tests.configs.programs import CONFIGS, ROOT, free_port, running
from tests.conftest import model_folder
from tests.server.live import ADDRESS


def steps(folder: Path) -> list[tuple[str, str]]:
    """The instructions, with the image's places inside a folder."""
    text = (CONFIGS / "Containerfile").read_text()
    for here, there in (("/src", str(ROOT)), ("/opt/", f"{folder}/opt/"), ("/var/", f"{folder}/var/")):
        text = text.replace(here, there)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(kind, rest) for kind, _, rest in (line.partition(" ") for line in lines)]


def test_the_steps_make_a_server_that_the_health_check_finds_well(tmp_path: Path) -> None:
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    # What it depends on is here already, the means to build it too; pip reads the second 0 as "no isolation".
    environ = os.environ | {"PYTHONPATH": packages, "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PACELINE_PORT": str(free_port())}
    instructions = steps(tmp_path)
    for kind, rest in instructions:
        if kind == "ENV":
            name, _, environ[name] = rest.partition("=")
        elif kind == "RUN" and "useradd" not in rest:  # this machine keeps its users as they are
            command = rest.replace("chown paceline:paceline", "test -d")
            run(command, shell=True, check=True, env=environ, stdout=DEVNULL)
    (entry,) = [json.loads(rest) for kind, rest in instructions if kind == "ENTRYPOINT"]
    (check,) = [json.loads(rest.split("CMD ")[1]) for kind, rest in instructions if kind == "HEALTHCHECK"]
    with running(*entry, str(model_folder("llama-int4")), environ=environ) as server:
        assert server.stderr is not None
        assert any(ADDRESS.search(line) for line in server.stderr)
        assert run(check, env=environ, check=False).returncode == 0
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    assert run(check, env=environ, check=False, stderr=DEVNULL).returncode != 0
