"""A program that takes docker's command line and runs "containers" as plain processes: `install` puts it on PATH.

No image is unpacked and nothing is isolated but the environment: a container gets the variables that were named and
what is in `site`, the content of the one image there is. Strict about flags, as docker is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

IMAGE, ID = "engines/vllm:cpu", "sha256:" + "ab" * 32
STATE = Path(__file__).parent


def install(folder: Path) -> Path:
    """A folder for PATH with `docker` in it. Its `calls.jsonl` gets every command line."""
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    script.chmod(0o755)
    return folder


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def fail(message: str, code: int = 1) -> int:
    sys.stderr.write(f"{message}\n")
    return code


def inspect(image: bool, wanted: str) -> int:
    if image:
        return print(ID) or 0 if wanted in (IMAGE, ID) else fail(f"Error: No such image: {wanted}")
    print((STATE / wanted).read_text())
    return 0


def remove(name: str) -> int:
    """The process id of a container that is gone may be another process's by now, hence the look at its variables."""
    try:
        pid = int((STATE / name).read_text())
        if f"CONTAINER={name}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return 0
    except (FileNotFoundError, ProcessLookupError):
        pass
    return fail(f"Error: No such container: {name}")


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("docker run", allow_abbrev=False)
    for flag in ("--rm", "--interactive"):
        parser.add_argument(flag, action="store_true")
    for option in ("--name", "--network", "--pull", "--shm-size", "--gpus", "--entrypoint"):
        parser.add_argument(option)
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.image != ID:
        return fail(f"docker: Error response from daemon: No such image: {options.image}.", 125)
    if options.gpus:
        return fail('docker: Error response from daemon: could not select device driver "" with capabilities.', 125)
    for mount in options.mount:
        fields = dict(field.partition("=")[::2] for field in mount.split(","))
        assert Path(fields["source"]).exists(), mount
        assert fields["source"] == fields["target"], mount
        assert "readonly" in fields, mount
    variables = {name: os.environ[name] for name in options.env}
    path = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(STATE / "site"), "CONTAINER": str(options.name)}
    stdin = None if options.interactive else subprocess.DEVNULL
    with subprocess.Popen([sys.executable, *options.command], env=path | variables, stdin=stdin) as container:
        signal.signal(signal.SIGTERM, lambda *_: container.terminate())
        if options.name:
            (STATE / options.name).write_text(str(container.pid))
        code = container.wait()
        return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    with (STATE / "calls.jsonl").open("a") as log:
        log.write(json.dumps(arguments) + "\n")
    match arguments:
        case ["image", "inspect", "--format", "{{.Id}}", image]:
            return inspect(True, image)
        case ["inspect", "--format", "{{.State.Pid}}", name]:
            return inspect(False, name)
        case ["rm", "--force", name]:
            return remove(name)
        case ["run", *rest]:
            return run(rest)
    return fail(f"docker: unknown command {arguments}", 125)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
