"""Downloads through the hub's own client, from a small hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORIES = {
    "models/org/name": {"config.json": b"{}", "model.safetensors": b"w", "tokenizer.json": b"{}", "pytorch.bin": b"p"},
    "models/org/other": {"config.json": b"{}", "pytorch.bin": b"p"},
    "datasets/org/questions": {"test.jsonl": b'{"question": "How many?", "answer": "3"}\n'},
}
DRIVER = """
import sys
from orchestrator.errors import InputError
from orchestrator.models import fetch, hub, resolve

try:
    if sys.argv[1] == "dataset":
        print(hub.dataset_file(*sys.argv[2:]))
    else:
        fetched = fetch(sys.argv[2])
        assert resolve(sys.argv[2]) == fetched
        print(fetched.path)
except InputError as error:
    sys.exit(str(error))
"""
Ask = Callable[..., subprocess.CompletedProcess[str]]


class Hub(BaseHTTPRequestHandler):
    """Enough of the hub's protocol for snapshots and single files."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].removeprefix("/")
        for name, files in REPOSITORIES.items():
            if path.startswith(f"api/{name}/tree/"):
                listing = [{"type": "file", "path": f, "size": len(b), "oid": _etag(b)} for f, b in files.items()]
                return self._send(json.dumps(listing).encode())
            if path.startswith(f"api/{name}"):
                siblings = [{"rfilename": file} for file in files]
                info = {"id": name.partition("/")[2], "sha": COMMIT, "siblings": siblings, "private": False}
                return self._send(json.dumps(info).encode())
            prefix = f"{name.removeprefix('models/')}/resolve/"
            file = path.removeprefix(prefix).partition("/")[2]
            if path.startswith(prefix) and file in files:
                return self._send(files[file])
            if path.startswith(prefix):
                return self._send(b"", 404, "EntryNotFound")
        return self._send(b"", 404, "RepoNotFound")

    def _send(self, body: bytes, status: int = 200, code: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{_etag(body)}"')
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def ask(tmp_path: Path, home: Path) -> Iterator[Ask]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }
    yield lambda *arguments: subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    server.shutdown()
    server.server_close()


def test_a_model_comes_without_other_weight_formats(ask: Ask) -> None:
    result = ask("model", "org/name")
    assert result.returncode == 0, result.stderr
    names = {path.name for path in Path(result.stdout.strip()).iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_model_without_safetensors(ask: Ask) -> None:
    result = ask("model", "org/other")
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1].endswith("it holds no *.safetensors weights")


def test_a_data_set_file(ask: Ask) -> None:
    result = ask("dataset", "org/questions", "test.jsonl")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).read_bytes() == REPOSITORIES["datasets/org/questions"]["test.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model", "org/absent"), "org/absent: the hub has no such repository"),
        (("dataset", "org/questions", "absent.jsonl"), "org/questions: the hub has no such file"),
    ],
)
def test_what_the_hub_does_not_have(ask: Ask, arguments: tuple[str, ...], message: str) -> None:
    result = ask(*arguments)
    assert result.returncode == 1
    assert message in result.stderr.strip().splitlines()[-1]


def _etag(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()
