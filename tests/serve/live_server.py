"""The page and what it asks for, on loopback, without the service's schedule: the page's own tests.

``python -m tests.serve.live_server name=MODEL…`` serves it for whoever works on the page.
"""

import asyncio
import json
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tformer_cli.artifacts.config_file import read_config, task_kind
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.opening import open_model
from tformer_cli.serve.inspector import Inspector
from tformer_cli.serve.page_files import POLICY, page_files


def application(models, delays=()):
    """Serves models by name; `delays` are seconds to wait before answers, by their texts."""
    inspector = Inspector()
    delays = dict(delays)

    async def page(request):
        await inspector.start()
        name = request.path_params.get("name", "")
        content, media_type = page_files()[name]
        headers = {"Content-Security-Policy": POLICY}
        return Response(content, media_type=media_type, headers=headers)

    async def listed(request):
        found = []
        for name, path in models.items():
            config = read_config(path)
            kind = task_kind(config.model)
            found.append({"name": name, "kind": kind, "verbs": list(kind_of(config.model).verbs)})
        return JSONResponse({"models": found})

    async def answer(request):
        body = await request.json()
        body["want"] = ["translation", *body.get("want", ())]
        if body.get("text") == "broken":
            return JSONResponse({"error": "the model is broken; ask another"}, 500)
        await asyncio.sleep(delays.get(body["text"], 0))

        async def lines():
            async for event in inspector.events(models[body["model"]], body):
                yield json.dumps(event) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def complete(request):
        body = await request.json()
        generator = open_model(models[body["model"]], "generate", device="cpu").generator
        (found,) = generator.generate([body["prompt"]])

        async def pieces():
            for word in found.texts[0].text.split(" "):
                yield f"data: {json.dumps({'choices': [{'text': word + ' '}]})}\n\n"
                await asyncio.sleep(0.02)
            yield "data: [DONE]\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(app):
        yield
        await inspector.close()

    routes = [
        Route("/", page),
        Route("/page/{name}", page),
        Route("/api/models", listed),
        Route("/api/{verb}", answer, methods=["POST"]),
        Route("/v1/completions", complete, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


@contextmanager
def served(models, delays=()):
    """Serves from a thread of this process; gives the address."""
    config = uvicorn.Config(application(models, delays), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    named = dict(one.split("=", 1) for one in sys.argv[1:])
    uvicorn.run(application({name: Path(path) for name, path in named.items()}), port=8123)
