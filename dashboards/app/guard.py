"""Who may talk to the dashboard, and what its pages may do.

On loopback anybody on this machine may, under a loopback name only: a page elsewhere that has its own name resolve to
this address is turned away. On any other address every request needs the token, or the cookie that it bought.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from flask import Flask, Response, redirect, request
from werkzeug.wrappers import Response as AnyResponse

COOKIE = "orchestrate-dashboard"


@dataclass(frozen=True)
class Guard:
    """`token` is None on loopback. The cookie's value is another secret, so that a copied link buys nothing else."""

    token: str | None
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @classmethod
    def of(cls, host: str) -> Guard:
        """A guard for an address to listen on."""
        return cls(None if is_loopback(host) else secrets.token_urlsafe(32))

    def watch(self, server: Flask, scripts: Sequence[str]) -> None:
        """Check every request to `server`; its pages may run their own files and the inline `scripts`, by hash."""
        policy = (
            f"default-src 'none'; script-src 'self' {' '.join(scripts)}; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
            "frame-ancestors 'none'"
        )
        server.before_request(self.check)

        @server.after_request
        def _headers(response: Response) -> Response:
            response.headers["Content-Security-Policy"] = policy
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Referrer-Policy"] = "no-referrer"
            return response

    def check(self) -> AnyResponse | None:
        """None lets the request through."""
        if self.token is None:
            return None if is_loopback(_host_name(request.host)) else _refusal("Not a name of this machine.")
        if _same(request.cookies.get(COOKIE, ""), self.cookie):
            return None
        if not _same(request.args.get("token", ""), self.token):
            return _refusal("This dashboard needs the link that its start printed.")
        rest = [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
        # One slash in front: a path of two would be read as another host.
        target = "/" + request.path.lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
        answer = redirect(target, 303)
        answer.set_cookie(COOKIE, self.cookie, httponly=True, samesite="Strict", secure=request.is_secure)
        return answer


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _refusal(text: str) -> Response:
    return Response(f"{text}\n", 403, mimetype="text/plain")
