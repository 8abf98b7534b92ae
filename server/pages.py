"""The page at `/` and what it is made of, and the feed it draws. Knows no step."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from server.bridge import Bridge
from server.feed import Feed
from server.reply import EventReply

FOLDER = Path(__file__).parent / "page"
HEADERS = {
    # The page may run its own scripts and ask this server, and nothing else.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def page_routes(feed: Feed, bridge: Bridge, *, page: bool) -> list[BaseRoute]:
    """The feed, and the page where it is wanted."""

    async def index(_: Request) -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers=HEADERS)

    async def steps(_: Request) -> EventReply:
        return EventReply(feed.watch(bridge))

    routes: list[BaseRoute] = [Route("/v1/steps", steps, methods=["GET"])]
    if page:
        routes += [Route("/", index, methods=["GET"]), Mount("/page", StaticFiles(directory=FOLDER))]
    return routes
