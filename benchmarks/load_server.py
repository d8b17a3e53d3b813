"""A simulated model server of known timing: streams chat completions and stamps each of its own sends.

    python -m benchmarks.load_server --gap-ms 30.8 --log sends.json

It computes nothing. It runs alone on a CPU and never sleeps, so that a chunk goes out when it is due, and its log says
when each one did. It prints its port, and writes the log and ends when its standard input ends.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import select
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

TOKENS = 2
"""Tokens a chunk."""
_GOLDEN = 0.6180339887498949
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
_DRAINS = 64
_PAUSE = 256
"""Sends between two looks at what came in."""


@dataclass(frozen=True)
class Timing:
    """When chunks are due: the first `ttft_s` after the request, one every `gap_s` after it.

    In lock-step all streams send on one beat of `gap_s`; else each has a phase of its own, spread evenly.
    """

    ttft_s: float
    gap_s: float
    chunks: int
    lockstep: bool

    def first(self, serial: int, received: float) -> float:
        due = received + self.ttft_s
        if self.lockstep:
            return due + (-due) % self.gap_s
        return due + (serial * _GOLDEN % 1.0) * self.gap_s


@dataclass
class Answer:
    """One request and the times of its sends. `serial` stands in its text, so that a client's record names it."""

    serial: int
    received: float
    stream: bool
    token_ids: bool
    sends: list[float] = field(default_factory=list)


class Server:
    """One epoll loop over all connections and a heap of what is due."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
        self._connections: dict[int, tuple[socket.socket, bytearray]] = {}
        self._due: list[tuple[float, int, int]] = []
        self.answers: list[Answer] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serve until standard input ends."""
        ended = False
        while not ended:
            for descriptor, _ in self._poll.poll(0):
                if descriptor == sys.stdin.fileno():
                    ended = not os.read(descriptor, 1)
                elif descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._read(descriptor)
            self._send_due()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connection.fileno()] = connection, bytearray()
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, descriptor: int) -> None:
        connection, received = self._connections[descriptor]
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            return
        received += data
        head, separator, rest = received.partition(b"\r\n\r\n")
        if separator and len(rest) >= _length(head):
            body = bytes(rest[: _length(head)])
            received.clear()
            self._answer(descriptor, bytes(head), body)

    def _drop(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._connections.pop(descriptor)[0].close()

    def _answer(self, descriptor: int, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            self._write(descriptor, _whole({"object": "list", "data": [{"id": "mock", "object": "model"}]}))
            return
        now, asked = perf_counter(), json.loads(body)
        answer = Answer(len(self.answers), now, bool(asked.get("stream")), bool(asked.get("return_token_ids")))
        self.answers.append(answer)
        if answer.stream:
            self._write(descriptor, _HEAD)
            heapq.heappush(self._due, (self._timing.first(answer.serial, now), answer.serial, descriptor))
        else:
            message = {"role": "assistant", "content": "ready"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._write(descriptor, _whole({"id": "mock", "choices": [choice], "usage": _usage(1)}))

    def _send_due(self) -> None:
        for _ in range(_PAUSE):
            if not self._due or self._due[0][0] > perf_counter():
                return
            due, serial, descriptor = heapq.heappop(self._due)
            if descriptor not in self._connections:
                continue
            answer = self.answers[serial]
            last = len(answer.sends) == self._timing.chunks - 1
            chunk = _chunk(answer, last)
            answer.sends.append(perf_counter())
            self._write(descriptor, chunk)
            if last:
                self._write(descriptor, _tail(self._timing.chunks * TOKENS))
            else:
                heapq.heappush(self._due, (due + self._timing.gap_s, serial, descriptor))

    def _write(self, descriptor: int, data: bytes) -> None:
        """A client that reads too slowly for the socket's buffer is let go: its chunks could not be sent on time."""
        try:
            if self._connections[descriptor][0].send(data) < len(data):
                self._drop(descriptor)
        except OSError:
            self._drop(descriptor)


def _length(head: bytearray) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _whole(value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _piece(data: bytes) -> bytes:
    event = b"data: %s\n\n" % data
    return b"%x\r\n%s\r\n" % (len(event), event)


_OPEN = b'{"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1764000000,"model":"mock","choices":['


def _chunk(answer: Answer, last: bool) -> bytes:
    text = b"r%d " % answer.serial if not answer.sends else b"ab cd "
    ids = b',"token_ids":[11,12]' if answer.token_ids else b""
    reason = b'"length"' if last else b"null"
    choice = b'{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":%s%s}' % (text, reason, ids)
    return _piece(_OPEN + choice + b"]}")


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": tokens + 8}


def _tail(tokens: int) -> bytes:
    return _piece(_OPEN + b'],"usage":%s}' % json.dumps(_usage(tokens)).encode()) + _piece(b"[DONE]") + b"0\r\n\r\n"


def drain(port: int, streams: int) -> None:
    """A client that asks once on each of `streams` connections and throws away what comes, until all is said."""
    body = b'{"stream":true}'
    request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    open_ones = {}
    poll = select.epoll()
    for _ in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        open_ones[connection.fileno()] = connection
        poll.register(connection.fileno(), select.EPOLLIN)
    while open_ones:
        for descriptor, _ in poll.poll():
            data = open_ones[descriptor].recv(1 << 20)
            if not data or data.endswith(b"0\r\n\r\n"):
                poll.unregister(descriptor)
                open_ones.pop(descriptor).close()


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.load_server", description="A simulated server; it computes nothing.")
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--gap-ms", type=float, default=2.0)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("--log", type=Path, default=os.devnull)
    parser.add_argument("--drain", type=int, metavar="PORT", help="be a client of the server there instead")
    asked = parser.parse_args()
    if asked.drain:
        drain(asked.drain, _DRAINS)
        return
    server = Server(Timing(asked.ttft_ms / 1e3, asked.gap_ms / 1e3, asked.chunks, asked.lockstep))
    print(server.port, flush=True)
    server.run()
    told = [{"serial": a.serial, "received": a.received, "sends": a.sends} for a in server.answers if a.stream]
    asked.log.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
