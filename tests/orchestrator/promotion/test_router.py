import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import aiohttp
import pytest
from aiohttp import web

from orchestrator.ports import free_port
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.hosts.local import LocalHost
from orchestrator.promotion.router import Router
from orchestrator.promotion.routes import PIN_HEADER, Canary, Group, Routes
from orchestrator.promotion.spec import RouterSpec
from orchestrator.promotion.supervisors.process import ProcessSupervisor
from tests.orchestrator.processes import eventually
from tests.orchestrator.promotion.bench import need_nginx


class Servers:
    """Servers that answer with their own name. `hold`: seconds between the two halves of an answer."""

    def __init__(self) -> None:
        self.hold = 0.0
        self._runners: dict[str, web.AppRunner] = {}

    async def start(self, name: str) -> Group:
        async def answer(_: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request=_)
            await response.write(name.encode())
            await asyncio.sleep(self.hold)
            await response.write(b".")
            return response

        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        self._runners[name] = web.AppRunner(app)
        await self._runners[name].setup()
        port = free_port()
        await web.TCPSite(self._runners[name], "127.0.0.1", port).start()
        return Group(name, (f"127.0.0.1:{port}",))

    async def stop(self, name: str) -> None:
        await self._runners.pop(name).cleanup()

    async def close(self) -> None:
        for name in list(self._runners):
            await self.stop(name)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    found = Servers()
    yield found
    await found.close()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    need_nginx()
    port = free_port()
    found = make_router(RouterSpec(listen=f"127.0.0.1:{port}"), tmp_path)
    yield found
    found.close()


def make_router(spec: RouterSpec, folder: Path) -> Router:
    return Router(LocalHost(), spec, PurePosixPath(folder / "router"), ProcessSupervisor(sys.executable), "router")


async def ask(router: Router, **headers: str) -> str:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"http://{router.spec.listen}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json={}, headers=names) as response:
        return (await response.text()).removesuffix(".") if response.status == 200 else str(response.status)


async def apply(router: Router, routes: Routes) -> None:
    await asyncio.to_thread(router.apply, routes)


async def test_a_session_stays_on_one_release_and_shares_are_about_right(router: Router, servers: Servers) -> None:
    old, new = await servers.start("old"), await servers.start("new")
    await apply(router, Routes("t", old, Canary(new, 30, int(time.time()) + 600)))
    first = [await ask(router, X_Session_Id=f"s{number}") for number in range(200)]
    assert [await ask(router, X_Session_Id=f"s{number}") for number in range(200)] == first
    assert 0.15 < first.count("new") / 200 < 0.45
    assert {await ask(router) for _ in range(60)} == {"old", "new"}
    assert {await ask(router, **{PIN_HEADER: "new"}) for _ in range(9)} == {"new"}
    assert router.shares() == {"old": 70.0, "new": 30}
    log = router.requests(0)
    assert len(log) == 200 + 200 + 60 + 9
    assert {entry["complete"] for entry in log} == {"OK"}


async def test_a_canary_that_nobody_watches_any_more_ends_by_itself(router: Router, servers: Servers) -> None:
    old, new = await servers.start("old"), await servers.start("new")
    until = int(time.time()) + 4
    await apply(router, Routes("t", old, Canary(new, 99.9, until)))
    before = [await ask(router) for _ in range(20)]
    if time.time() < until:  # else the machine was too slow to say anything about the time before
        assert "new" in before
    await asyncio.sleep(max(0.0, until + 0.1 - time.time()))
    assert {await ask(router) for _ in range(30)} == {"old"}
    assert router.shares() == {"old": 100.0, "new": 0.0}


async def test_a_dead_release_is_stood_in_for_as_long_as_nothing_was_answered(router: Router, servers: Servers) -> None:
    old, new = await servers.start("old"), await servers.start("new")
    await apply(router, Routes("t", new, pinned=(old,), spares=old.servers))
    assert await ask(router) == "new"
    await servers.stop("new")
    assert [await ask(router) for _ in range(5)] == ["old"] * 5
    assert await ask(router, **{PIN_HEADER: "new"}) == "502"


async def test_an_answer_streams_and_outlives_a_reload(router: Router, servers: Servers) -> None:
    old, new = await servers.start("old"), await servers.start("new")
    servers.hold = 3.0
    await apply(router, Routes("t", old))
    url = f"http://{router.spec.listen}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as response:
        assert await response.content.readany() == b"old"
        assert await asyncio.to_thread(router.in_flight, old.servers) == 1
        await apply(router, Routes("t", new))
        assert await response.text() == "."
    assert await asyncio.to_thread(router.in_flight, old.servers) == 0
    servers.hold = 0.0
    assert await ask(router) == "new"


async def test_routes_that_nginx_refuses_leave_those_before(router: Router, servers: Servers) -> None:
    routes = Routes("t", await servers.start("old"))
    await apply(router, routes)
    written = router.host.read(router.include)
    with pytest.raises(PromotionError, match="nginx refuses the routes"):
        await apply(router, replace(routes, stable=Group("bad", ("no such host:1",))))
    assert router.host.read(router.include) == written
    assert await ask(router) == "old"


async def test_an_instance_that_lost_its_keeper_is_taken_over_with_the_new_routes(
    router: Router, servers: Servers
) -> None:
    await apply(router, Routes("t", await servers.start("old")))
    state = Path(router.unit.folder) / "state.json"
    before = json.loads(state.read_text())
    os.kill(before["keeper"]["pid"], signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{before['keeper']['pid']}").exists())
    await apply(router, Routes("t", await servers.start("new")))
    assert await ask(router) == "new"
    assert json.loads(state.read_text())["server"] == before["server"], "nothing that it answered was cut"


async def test_routes_that_were_not_taken_up_are_not_left_for_the_next_reload(router: Router, servers: Servers) -> None:
    routes = Routes("t", await servers.start("old"))
    await apply(router, routes)
    written = router.host.read(router.include)
    router.host.write(router.include, b"# what a command that failed after writing it left\n")
    await apply(router, routes)
    assert router.host.read(router.include) == written


async def test_what_speaks_another_protocol_on_the_port_is_no_router_of_ours(tmp_path: Path) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-something\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        router = make_router(RouterSpec(listen=f"127.0.0.1:{port}"), tmp_path)
        assert not await asyncio.to_thread(router.running)


async def test_only_the_engines_api_is_reached(router: Router, servers: Servers) -> None:
    await apply(router, Routes("t", await servers.start("old")))
    async with aiohttp.ClientSession() as session:
        for path in ("/configure", "/server_info", "/metrics", "/"):
            async with session.get(f"http://{router.spec.listen}{path}") as response:
                assert response.status == 404, path


async def test_in_a_hosts_own_nginx_one_file_is_ours(tmp_path: Path, servers: Servers) -> None:
    """The host's nginx is played by a second instance, which includes a folder as Debian's does."""
    need_nginx()
    port = free_port()
    include = tmp_path / "conf.d" / "orchestrate.conf"
    include.parent.mkdir()
    (tmp_path / "conf.d" / "theirs.conf").write_text("# not ours\n")
    main = tmp_path / "nginx.conf"
    paths = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    main.write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ client_body_temp_path {tmp_path}/body; {paths} include {tmp_path}/conf.d/*.conf; }}\n"
    )
    program = tmp_path / "nginx"
    program.write_text(f'#!/bin/sh\nexec /usr/sbin/nginx -e {tmp_path}/error.log -c {main} "$@"\n')
    program.chmod(0o755)
    host, spec = (
        LocalHost(),
        RouterSpec(mode="include", include_path=str(include), listen=f"127.0.0.1:{port}", program=str(program)),
    )
    router = make_router(spec, tmp_path)
    assert host.run([str(program)], timeout_s=10).code == 0
    try:
        await apply(router, Routes("t", await servers.start("old")))
        assert await ask(router) == "old"
        await asyncio.to_thread(router.close)
        assert not include.exists()
        assert sorted(path.name for path in include.parent.iterdir()) == ["theirs.conf"]
    finally:
        host.run([str(program), "-s", "quit"], timeout_s=10)
