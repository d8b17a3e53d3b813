"""What a host is, asked by commands that every Linux has."""

from __future__ import annotations

from pathlib import PurePosixPath

from orchestrator.promotion.host import Gpu, Host, HostError, HostFacts

TOOLS = ("nginx", "docker", "systemctl", "rsync", "python3", "crontab")

_SMI = "nvidia-smi"
_SMI_FIELDS = "name,uuid,memory.total,driver_version"
_FIND_TOOLS = 'for tool; do if command -v "$tool" >/dev/null; then echo "$tool"; fi; done'
_TIMEOUT_S = 30.0
_MIB = 1 << 20


def ask(host: Host, root: PurePosixPath) -> HostFacts:
    """Memory is what is built in, not what is free. HostError: something of it cannot be told."""
    tools = frozenset(_output(host, ["sh", "-c", _FIND_TOOLS, "sh", *TOOLS, _SMI]).split())
    return HostFacts(
        disk_free_bytes=_disk_free(host, root),
        memory_bytes=_memory(host),
        gpus=_gpus(host) if _SMI in tools else (),
        kernel=_output(host, ["uname", "-r"]).strip(),
        boot_id=_file(host, "/proc/sys/kernel/random/boot_id").strip(),
        tools=tools - {_SMI},
    )


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """nvidia-smi's lines: name, UUID, MiB, driver. ValueError for anything else."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]
    return tuple(Gpu(name, uuid, int(mebibytes) * _MIB, driver) for name, uuid, mebibytes, driver in rows)


def _gpus(host: Host) -> tuple[Gpu, ...]:
    text = _output(host, [_SMI, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"])
    try:
        return parse_gpus(text)
    except ValueError as error:
        raise HostError(f"{host.name}: {_SMI} answers {text.strip()[:80]!r}") from error


def _disk_free(host: Host, root: PurePosixPath) -> int:
    """Of the nearest folder that exists."""
    for folder in (root, *root.parents):
        finished = host.run(["df", "-B1", "--output=avail", str(folder)], timeout_s=_TIMEOUT_S)
        if finished.code == 0:
            return int(finished.out.split()[-1])
    raise HostError(f"{host.name}: no file system holds {root}")


def _memory(host: Host) -> int:
    for line in _file(host, "/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise HostError(f"{host.name}: /proc/meminfo does not tell the memory")


def _file(host: Host, path: str) -> str:
    data = host.read(PurePosixPath(path))
    if data is None:
        raise HostError(f"{host.name}: {path} is missing")
    return data.decode()


def _output(host: Host, argv: list[str]) -> str:
    finished = host.run(argv, timeout_s=_TIMEOUT_S)
    if finished.code:
        raise HostError(f"{host.name}: {argv[0]} failed: {(finished.err or finished.out).strip()[:200]}")
    return finished.out
