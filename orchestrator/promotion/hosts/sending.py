"""Upload of a folder over SFTP that goes on where an earlier one stopped, and that is compared before it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import paramiko

from orchestrator.promotion.host import Host, HostError
from orchestrator.promotion.hosts import tree
from orchestrator.promotion.hosts.connection import Connection

_CHUNK = 1 << 18
_COMMAND_S = 60.0
_DIGEST_BYTES_PER_S = 20e6
"""A slow disk: how long digests may take is reckoned with it."""

_LIST = 'if cd "$1" 2>/dev/null; then find . ! -type d -printf "%s %P\\0"; fi'
_DIGESTS = 'cd "$1" && xargs -0r sha256sum -z --'


def send(
    host: Host, connection: Connection, folder: Path, to: PurePosixPath, progress: Callable[[int, int], None]
) -> None:
    """What `Host.upload` promises."""
    wanted = tree.files(folder)
    total = sum(file.size for file in wanted)
    if _sizes(host, to) == {file.name: file.size for file in wanted} and not _different(host, wanted, to):
        progress(total, total)
        return
    part = tree.staging(to)
    there = _prepare(host, wanted, part)
    with connection.files(str(part)) as sftp:
        done = 0
        for file in wanted:
            for count in _continue(sftp, file, part / file.name, there.get(file.name, 0)):
                done += count
                progress(done, total)
    if wrong := _different(host, wanted, part):
        host.remove(part / wrong[0])
        raise HostError(f"{host.name}: {part / wrong[0]} differs from what was sent; next time it is sent anew")
    _must(host, ["sync", "-f", str(part)])
    host.remove(to)
    _must(host, ["mv", "-T", "--", str(part), str(to)])
    _must(host, ["sync", str(to.parent)])


def _prepare(host: Host, wanted: Sequence[tree.File], part: PurePosixPath) -> dict[str, int]:
    """Make the folders and remove what does not belong. Returns the sizes of what is there already."""
    folders = [str(part), *(str(part / name) for name in tree.folders(wanted))]
    _must(host, ["xargs", "-0", "mkdir", "-p", "--"], _zeros(folders))
    there = _sizes(host, part)
    extra = there.keys() - {file.name for file in wanted}
    if extra:
        _must(host, ["xargs", "-0", "rm", "-f", "--"], _zeros(str(part / name) for name in sorted(extra)))
    return there


def _continue(sftp: paramiko.SFTPClient, file: tree.File, to: PurePosixPath, there: int) -> Iterator[int]:
    """Send what is missing at the end of a file; yields byte counts, what was there first."""
    start = there if there <= file.size else 0
    yield start
    if start and start == file.size:
        return
    with file.source.open("rb") as source, sftp.open(str(to), "r+b" if start else "wb") as target:
        source.seek(start)
        target.seek(start)
        target.chmod(file.mode)  # first: a file that is whole is passed over next time
        target.set_pipelined(True)
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            yield len(chunk)
        target.flush()
        arrived = target.stat().st_size
    if arrived != file.size:  # writes in a pipeline fail in silence
        raise OSError(f"{arrived} of {file.size} bytes of {file.name} arrived; is the disk full?")


def _different(host: Host, wanted: Sequence[tree.File], folder: PurePosixPath) -> list[str]:
    return tree.different(wanted, _digests(host, folder, _sizes(host, folder)))


def _digests(host: Host, folder: PurePosixPath, sizes: dict[str, int]) -> dict[str, str]:
    within = _COMMAND_S + sum(sizes.values()) / _DIGEST_BYTES_PER_S
    out = _must(host, ["sh", "-c", _DIGESTS, "sh", str(folder)], _zeros(sizes), within)
    return {name: digest for digest, _, name in (line.partition("  ") for line in out.split("\0") if line)}


def _sizes(host: Host, folder: PurePosixPath) -> dict[str, int]:
    """Bytes of every file below a folder by relative name; empty where the folder is absent."""
    out = _must(host, ["sh", "-c", _LIST, "sh", str(folder)])
    return {name: int(size) for size, _, name in (line.partition(" ") for line in out.split("\0") if line)}


def _zeros(names: Iterable[str]) -> bytes:
    return b"".join(name.encode() + b"\0" for name in names)


def _must(host: Host, argv: Sequence[str], data: bytes | None = None, timeout_s: float = _COMMAND_S) -> str:
    finished = host.run(argv, timeout_s=timeout_s, input=data)
    if finished.code:
        raise HostError(f"{host.name}: {argv[0]} failed: {finished.err.strip() or finished.code}")
    return finished.out
