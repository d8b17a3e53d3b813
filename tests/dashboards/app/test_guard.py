from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from dashboards.app.application import create_app
from dashboards.app.guard import COOKIE, Guard, is_loopback
from dashboards.app.places import Places


def client(runs: Path, host: str) -> tuple[FlaskClient, Guard]:
    guard = Guard.of(host)
    return create_app(Places(runs), guard).server.test_client(use_cookies=False), guard


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Guard.of(host).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example.invalid", ""])
def test_any_other_address_has_a_token(host: str) -> None:
    token = Guard.of(host).token
    assert token is not None
    assert len(token) >= 40
    assert token != Guard.of(host).token


@pytest.mark.parametrize("path", ["/", "/runs/winner-synthetic", "/_dash-layout", "/assets/app.js"])
def test_without_the_token_nothing_is_served(tmp_path: Path, path: str) -> None:
    browser, _ = client(tmp_path, "0.0.0.0")
    for address in (path, f"{path}?token=", f"{path}?token=wrong"):
        answer = browser.get(address)
        assert answer.status_code == 403
        assert b"<" not in answer.data
    assert browser.post("/_dash-update-component", json={}).status_code == 403
    assert browser.get(path, headers={"Cookie": f"{COOKIE}=wrong"}).status_code == 403


def test_the_token_buys_a_cookie_and_leaves_the_address(tmp_path: Path) -> None:
    browser, guard = client(tmp_path, "0.0.0.0")
    answer = browser.get(f"/runs/a?sort=tpot&token={guard.token}")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/runs/a?sort=tpot"
    morsel = SimpleCookie(answer.headers["Set-Cookie"])[COOKIE]
    assert morsel["httponly"]
    assert morsel["samesite"] == "Strict"
    assert morsel.value not in (guard.token, "")
    assert browser.get("/", headers={"Cookie": f"{COOKIE}={morsel.value}"}).status_code == 200
    # The token is no cookie and the cookie no token.
    assert browser.get("/", headers={"Cookie": f"{COOKIE}={guard.token}"}).status_code == 403
    assert browser.get(f"/?token={morsel.value}").status_code == 403


def test_the_way_back_stays_on_this_host(tmp_path: Path) -> None:
    browser, guard = client(tmp_path, "0.0.0.0")
    answer = browser.get(f"http://localhost//example.invalid/?token={guard.token}")
    assert not answer.headers.get("Location", "").startswith("//")


def test_a_foreign_name_for_this_machine_is_turned_away(tmp_path: Path) -> None:
    browser, _ = client(tmp_path, "127.0.0.1")
    assert browser.get("/", headers={"Host": "127.0.0.1:8050"}).status_code == 200
    assert browser.get("/", headers={"Host": "[::1]:8050"}).status_code == 200
    for host in ("rebound.example.invalid", "127.0.0.1.example.invalid:8050", "[::1"):
        assert browser.get("/", headers={"Host": host}).status_code in (400, 403)


def test_the_address_that_is_listened_on_is_answered(tmp_path: Path) -> None:
    browser, guard = client(tmp_path, "127.8.8.8")
    assert guard.token is None
    assert browser.get("/", headers={"Host": "127.8.8.8:8050"}).status_code == 200


def test_pages_may_run_nothing_but_their_own_scripts(tmp_path: Path) -> None:
    browser, _ = client(tmp_path, "127.0.0.1")
    answer = browser.get("/")
    policy = {part.split()[0]: part.split()[1:] for part in answer.headers["Content-Security-Policy"].split("; ")}
    assert policy["default-src"] == ["'none'"]
    assert "'unsafe-inline'" not in policy["script-src"]
    assert "'unsafe-eval'" not in policy["script-src"]
    assert policy["frame-ancestors"] == ["'none'"]
    assert b"https://" not in answer.data.replace(b"https://www.w3.org", b"")
