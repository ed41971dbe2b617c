"""A server of files on this machine, which can break off, forget ranges or lie."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class FileServer:
    """Serves `files` by their paths; `requests` lists path and range of each request."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.breaks_after: list[int] = []  # bytes of an answer's body, for the next requests
        self.has_ranges = True
        self.url = ""


@contextmanager
def file_server():
    state = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            wanted = self.headers.get("Range")
            state.requests.append((self.path, wanted))
            content = state.files.get(self.path)
            if content is None:
                return self.send_error(404)
            begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if not state.has_ranges:
                begin = 0
            if begin and begin >= len(content):
                return self.send_error(416)
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            end = begin + state.breaks_after.pop(0) if state.breaks_after else len(content)
            self.wfile.write(content[begin:end])
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
