"""Serves the dashboard."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, replace

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from dashboards.app.application import create_app
from dashboards.app.guard import Guard
from dashboards.app.places import Places
from orchestrator.errors import InputError


class _Quiet(WSGIRequestHandler):
    """Writes no access log: the first address of a session holds the token."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@dataclass(frozen=True)
class Server:
    """A dashboard that listens already; `address` is where to open it, with the token where one is needed."""

    address: str
    wsgi: BaseWSGIServer

    def serve(self) -> None:
        """Answer until interrupted."""
        try:
            self.wsgi.serve_forever()
        finally:
            self.wsgi.server_close()


def open_server(places: Places, host: str, port: int) -> Server:
    """Listen on an address. Port 0 takes a free one. InputError when the address cannot be had."""
    if not places.runs.is_dir():
        raise InputError(f"{places.runs}: no such folder; `orchestrate sweep FILE` makes the first run")
    guard = Guard.of(host)
    app = create_app(replace(places, runs=places.runs.resolve()), guard)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with _listening(host, port) as listener:
        wsgi = make_server(host, port, app.server, threaded=True, request_handler=_Quiet, fd=listener.fileno())
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={guard.token}" if guard.token else ""
    return Server(f"http://{shown}:{wsgi.port}/{query}", wsgi)


def _listening(host: str, port: int) -> socket.socket:
    """Not left to werkzeug, which prints why it cannot and leaves."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no name of a host"
        raise InputError(f"{host}:{port}: cannot listen there: {reason}") from error
