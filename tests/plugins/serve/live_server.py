"""Runs the whole service on loopback in a thread, for tests of the page."""

import asyncio
import threading
from contextlib import contextmanager

import uvicorn

from tformer_cli.plugins.serve.app import make_app
from tformer_cli.plugins.serve.inspector import Inspector
from tformer_cli.plugins.serve.models import Service
from tformer_cli.plugins.serve.site import Site


@contextmanager
def serve_models(models, around=lambda app: app, **site):
    """Serves models by name; yields the address. `around` may wrap the application."""
    site = Site(service=Service(models), paths=models, inspector=Inspector(), **site)
    config = uvicorn.Config(
        around(make_app(site)), port=0, log_level="error", ws="none", lifespan="off"
    )
    server = uvicorn.Server(config)

    async def run():
        await server.serve()
        await site.inspector.close()
        await site.service.drain(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()
