"""SGLang servers side by side on one GPU, by the adapter's command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.base import Arm, Deployment, Method
from engines.sglang.adapter import SglangEngine
from engines.sglang.software import describe

ENGINE = SglangEngine()
POOL = ("--mem-fraction-static", "0.8", "--max-total-tokens", "65536", "--sleep-on-idle")
_REQUEST_S = 300.0


@dataclass(frozen=True)
class Place:
    """What the servers of one program share. `arguments` follow the adapter's own."""

    target: str
    drafter: str | None
    dtype: str
    logs: Path
    max_batch: int = 32
    max_context: int = 2048
    arguments: tuple[str, ...] = POOL
    environment: Mapping[str, str] = field(default_factory=dict)

    def deployment(self) -> Deployment:
        return Deployment(
            software=describe(sys.executable),
            interpreter=sys.executable,
            target=self.target,
            target_digest="",
            drafter=self.drafter,
            drafter_digest=None,
            device="cuda",
            dtype=self.dtype,
            threads=4,
            max_batch=self.max_batch,
            max_context=self.max_context,
            arguments=self.arguments,
            environment=self.environment,
        )


def arm(name: str, budget: int | None = None, chain: bool = False, **options: Any) -> Arm:
    """`ar` and `dflash` by name, any other name is a tree; on Triton attention, in a tree's prefill too, unless told
    otherwise. An option that is None is left to SGLang.
    """
    method = {"ar": Method.AUTOREGRESSIVE, "dflash": Method.DFLASH}.get(name, Method.DDTREE)
    where = "prefill_attention_backend" if method is Method.DDTREE else "attention_backend"
    given = {name: value for name, value in ({where: "triton"} | options).items() if value is not None}
    return Arm(name, "sglang", method, budget, chain, given)


class Server:
    """One running server. `extra` are environment variables of this one alone, which may be what an arm cannot say."""

    def __init__(self, subject: Arm, place: Place, port: int, extra: Mapping[str, str] | None = None) -> None:
        self.arm, self.port = subject, port
        self.log = place.logs / f"{subject.name}-{place.dtype}.log"
        deployment = place.deployment()
        variables = {**os.environ, **ENGINE.env(subject, deployment), **(extra or {})}
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ENGINE.command(subject, deployment, port),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    def healthy(self) -> bool:
        """Whether it takes requests."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return True
        except OSError:
            return False

    def ready(self, within_s: float) -> bool:
        """Wait until it takes requests; False once it is dead or late."""
        while time.monotonic() - self.began < within_s and self.alive():
            if self.healthy():
                return True
            time.sleep(0.5)
        return False

    def death(self) -> str:
        """The telling line of its log."""
        return ENGINE.death(self.text) or self.text.strip().splitlines()[-1]

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def post(self, path: str, body: object, reads: bool = True) -> Any:
        """The answer's JSON, or None where it is not to be read."""
        with self._asked(path, body) as answer:
            return json.load(answer) if reads else None

    def _asked(self, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=_REQUEST_S)

    def generate(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> dict[str, Any]:
        """SGLang's own answer: `output_ids` and `meta_info`."""
        answer: dict[str, Any] = self.post("/generate", _wanted(prompt, tokens, sampling))
        return answer

    def arrivals(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> list[float]:
        """When each piece of a streamed answer came, by `time.perf_counter`: one piece a step."""
        return [came for came, _ in self._streamed(prompt, tokens, sampling)]

    def pieces(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> list[dict[str, Any]]:
        """The pieces of a streamed answer, each with what is new in it."""
        return [json.loads(line.removeprefix(b"data: ")) for _, line in self._streamed(prompt, tokens, sampling)]

    def _streamed(self, prompt: Sequence[int], tokens: int, sampling: Mapping[str, Any]) -> list[tuple[float, bytes]]:
        with self._asked("/generate", _wanted(prompt, tokens, sampling) | {"stream": True}) as answer:
            return [(time.perf_counter(), line) for line in answer if line.startswith(b"data: {")]

    def generate_all(
        self, prompts: Iterable[Sequence[int]], tokens: int, concurrency: int, **sampling: Any
    ) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, tokens, **sampling), prompts))

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _wanted(prompt: Sequence[int], tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_ids": list(prompt),
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, **sampling},
    }


def stop_when_told() -> None:
    """A time limit ends a program by SIGTERM. Its servers are sessions of their own, and only `finally` stops them."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def bring_up(servers: Mapping[str, Server], within_s: float, needed: Collection[str] = ()) -> dict[str, str]:
    """Wait until each takes requests or is dead. Why each dead one died; SystemExit as soon as one of `needed` is:
    nothing can be shown without it.
    """
    dead: dict[str, str] = {}
    waiting = dict(servers)
    while waiting:
        for name, server in list(waiting.items()):
            if server.healthy():
                print(f"{name} up after {time.monotonic() - server.began:.0f} s", flush=True)
                del waiting[name]
            elif not server.alive() or time.monotonic() - server.began > within_s:
                dead[name] = server.death() if not server.alive() else f"not ready after {within_s:.0f} s"
                print(f"{name} DEAD: {dead[name]}", flush=True)
                del waiting[name]
                if name in needed:
                    raise SystemExit(f"{name} is needed and died; the end of its log:\n{server.text[-4000:]}")
        time.sleep(0.5)
    return dead


def acceptance_length(answers: Iterable[Mapping[str, Any]]) -> float:
    """1 + accepted / verify steps, pooled."""
    told = [answer["meta_info"] for answer in answers]
    steps = sum(one["spec_verify_ct"] for one in told)
    return 1 + sum(one["spec_num_correct_drafts"] for one in told) / steps if steps else float("nan")


def write(path: Path, results: Mapping[str, Any]) -> None:
    """With what every result needs beside it: the command, versions and the GPU."""
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    )
    command, gpus = "python " + " ".join(sys.orig_argv[1:]), " and ".join(gpu.stdout.splitlines())
    about = {"command": command, "software": describe(sys.executable), "gpu": gpus}
    path.write_text(json.dumps(about | dict(results), indent=1) + "\n", encoding="utf-8")
