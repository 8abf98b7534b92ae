"""The rooms import only downwards; this reads the imports and fails on a wrong arrow."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for package in ("scheduler", "server") for path in (ROOT / package).rglob("*.py"))

# What a room must never know. Rooms are module names; a name covers what is below it.
ENGINE_SIDE = ("asyncio", "anyio", "starlette", "uvicorn", "server", "prometheus_client")
FORBIDDEN = {
    "scheduler": ENGINE_SIDE,
    "scheduler.errors": ("scheduler",),
    "scheduler.params": ("numpy",),
    "scheduler.request": ("scheduler.plan", "scheduler.model", "scheduler.engine"),
    "scheduler.plan": ("scheduler.request", "scheduler.model", "numpy", "time"),
    "scheduler.slots": ("onnxruntime", "scheduler.request", "scheduler.plan"),
    "scheduler.placing": ("onnxruntime", "scheduler.request", "scheduler.plan"),
    "scheduler.pace": ("scheduler.request", "scheduler.model", "numpy", "time"),
    "scheduler.order": ("scheduler.plan", "scheduler.slots", "scheduler.model", "time"),
    "scheduler.tenants": ("onnxruntime", "scheduler.engine", "scheduler.model.session", "time"),
    "scheduler.batch": ("onnxruntime", "scheduler.request"),
    "scheduler.sampling": ("scheduler.request", "scheduler.engine"),
    "scheduler.engine": ("threading", "onnxruntime", "scheduler.worker", "scheduler.model.session"),
    "scheduler.worker": ("onnxruntime", "scheduler.model"),
    "scheduler.config": ("os",),
    "scheduler.model": ("scheduler.request", "scheduler.engine", "scheduler.worker"),
    "scheduler.model.session": ("scheduler.plan", "scheduler.model.importing"),
    "scheduler.model.importing": ("scheduler.plan",),
    "server.app": ("scheduler",),
    "server.endpoints": ("onnxruntime", "threading"),
    "server.bodies": ("starlette", "scheduler"),
    "server.call": ("starlette", "scheduler", "msgspec"),
    "server.fields": ("starlette", "scheduler"),
    "server.schema": ("starlette", "scheduler"),
    "server.chat_template": ("starlette", "tokenizers"),
    "server.prompt": ("starlette",),
    "server.bridge": ("msgspec", "json", "server.text", "server.render"),
    "server.stream": ("threading", "msgspec", "server.text", "server.render"),
    "server.text": ("asyncio",),
    "server.choice": ("asyncio", "starlette"),
    "server.generation": ("starlette", "threading"),
    "server.render": ("asyncio", "scheduler"),
    "server.render_logprobs": ("asyncio", "scheduler"),
    "scheduler.adjust": ("scheduler.request", "scheduler.engine"),
    "scheduler.logprobs": ("scheduler.request", "scheduler.engine"),
    "scheduler.outcome": ("scheduler.engine", "scheduler.model", "scheduler.slots"),
    "scheduler.coming": ("scheduler.engine", "scheduler.model", "scheduler.tenants"),
    "server.metrics": ("asyncio",),
    "server.queue": ("asyncio", "scheduler", "time"),
    "server.load": ("scheduler", "starlette", "prometheus_client", "server.bridge", "server.schema", "server.render"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def below(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_room_does_not_import_what_it_must_not_know(path: Path) -> None:
    module = module_name(path)
    forbidden = {bad for room, bads in FORBIDDEN.items() if below(module, room) for bad in bads}
    own = {name for name in imports(path) if below(name, module)}
    wrong = {name for name in imports(path) - own if any(below(name, bad) for bad in forbidden)}
    assert not wrong


def test_every_room_named_here_exists() -> None:
    names = {module_name(path) for path in FILES}
    assert set(FORBIDDEN) <= names
