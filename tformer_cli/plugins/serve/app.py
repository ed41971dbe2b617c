"""The application: routes requests, answers errors, and stops work when a client leaves.

Guard (security.py) -> App -> a handler of libretranslate.py, openai.py or live.py -> Service
"""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tformer_cli.plugins.serve import chat, libretranslate, live, openai
from tformer_cli.plugins.serve.dialects import dialect_of
from tformer_cli.plugins.serve.metrics import MEDIA_TYPE, sum_metrics
from tformer_cli.plugins.serve.page_files import page_files
from tformer_cli.plugins.serve.proxies import ENTRANCE, PREFIX
from tformer_cli.plugins.serve.request_log import ENTRY, LEFT
from tformer_cli.plugins.serve.requests import Gone, Refused
from tformer_cli.plugins.serve.security import BODY_IS_READ, Guard, address_of
from tformer_cli.plugins.serve.site import CLIENT, Client, Route, Site, refusal

UNKNOWN = "other"
"""Endpoint of requests without a route: their paths would make unlimited labels."""
_PARAMETER = re.compile(r"\{(\w+)\}")


async def ready(site: Site, request: Request) -> Response:  # noqa: ARG001 - the same for all
    """Tells a load balancer whether the service takes more requests."""
    if site.is_draining or not site.service.ready():
        raise Refused(503, "not ready")
    return JSONResponse({"status": "ready"})


async def metrics(site: Site, request: Request) -> Response:
    site.check_key(request)
    text = site.metrics_text()
    if site.board is not None:
        with suppress(OSError):  # these counts survive this worker
            site.board.write(text)
        text = sum_metrics([text, *site.board.read_others()])
    return Response(text, media_type=MEDIA_TYPE)


async def page(site: Site, request: Request) -> Response:
    """Sends the live page or one of its files, and starts the inspector meanwhile."""
    file = page_files().get(request.path_params.get("name", ""))
    if file is None:
        raise Refused(404, "there is no such file")
    if site.inspector is not None:
        await site.inspector.start()
    headers = {"cache-control": "no-cache"}
    return Response(file.content, media_type=file.media_type, headers=headers)


async def entrance(site: Site, request: Request) -> Response:  # noqa: ARG001 - to the page
    """Redirects a request for the bare prefix to the page below it."""
    return Response(status_code=308, headers={"location": f"{request.scope[PREFIX]}/"})


ROUTES: Sequence[Route] = (
    *libretranslate.ROUTES,
    *openai.ROUTES,
    *chat.ROUTES,
    *live.ROUTES,
    Route("GET", "/ready", ready),
    Route("GET", "/metrics", metrics),
    Route("GET", "/", page),
    Route("GET", "/page/{name}", page),
    Route("GET", ENTRANCE, entrance),
)


def make_app(site: Site) -> ASGIApp:
    """Builds the complete application for a service."""
    return Guard(App(site), site.settings, lambda: site.is_draining, log=site.log)


class App:
    """Finds the handler of a request, and answers with its response or its error."""

    def __init__(self, site: Site, routes: Sequence[Route] = ROUTES) -> None:
        self._site = site
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        for path, methods in by_path.items():
            if "{" in path:
                pattern = _PARAMETER.sub(r"(?P<\1>[^/]+)", path)
                self._patterns.append((re.compile(pattern), methods))
            else:
                self._exact[path] = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = time.monotonic()
        methods, parameters = self._match_path(scope["path"])
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        endpoint = next(iter(methods.values())).path if methods else UNKNOWN
        status = 0
        if (entry := ENTRY.get()) is not None:
            entry.route = endpoint

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        request = Request({**scope, "path_params": parameters}, receive)
        CLIENT.set(Client(address_of(scope)))  # handlers of this request run in this context
        try:
            response = await self._answer(route, methods, request)
            await response(scope, receive, noting)
        except (Gone, ClientDisconnect):
            self._site.metrics.gone += 1
            status = status or LEFT
        finally:
            self._site.metrics.add(endpoint, status, time.monotonic() - started)

    def _match_path(self, path: str) -> tuple[Mapping[str, Route], Mapping[str, str]]:
        if path in self._exact:
            return self._exact[path], {}
        for pattern, methods in self._patterns:
            if match := pattern.fullmatch(path):
                return methods, match.groupdict()
        return {}, {}

    async def _answer(
        self, route: Route | None, methods: Mapping[str, Route], request: Request
    ) -> Response:
        if route is None:
            error_response = dialect_of(request.scope["path"])
            if not methods:
                return error_response(Refused(404, "there is no such path", code="unknown_url"))
            allowed = {"allow": ", ".join(methods)}
            return error_response(Refused(405, "method not allowed on this path", headers=allowed))
        try:
            return await self._answer_unless_gone(route, request)
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001 - clients never see a traceback
            return route.error(refusal(error))

    async def _answer_unless_gone(self, route: Route, request: Request) -> Response:
        """Computes an answer, and cancels the work if the client leaves."""
        work = asyncio.ensure_future(route.handler(self._site, request))
        watch = asyncio.ensure_future(_wait_for_disconnect(request))
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise Gone
        finally:
            for task in (watch, work):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


async def _wait_for_disconnect(request: Request) -> None:
    """Returns when the client has left; waits for the body first, so as not to consume it."""
    await request.scope[BODY_IS_READ].wait()
    while (await request.receive())["type"] != "http.disconnect":
        pass
