"""SYNTHETIC targets: a deploy.yaml, journals and routes as promotion writes them, for the dashboards' tests alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engines.base import Arm, Deployment, Method
from orchestrator.promotion import tree
from orchestrator.promotion.journal import FULL, Entry, Kind, Mark, Replica
from orchestrator.promotion.release import RELEASE, Promise, ReleaseRecord
from orchestrator.promotion.routes import Canary, Group, Routes, include_file
from orchestrator.promotion.spec import RouterSpec
from orchestrator.records import Interval

OLD, NEW = "0ld0ld0ld0ld", "new0new0new0"
FOREVER = 4_000_000_000


def write_targets(folder: Path) -> Path:
    """deploy.yaml with four targets: one that serves and can go back, one in a canary, an empty one, one behind SSH."""
    serving = [*_change("1", OLD, Kind.PROMOTE), *_undone("2", NEW), *_change("3", NEW, Kind.PROMOTE)]
    _target(folder / "serving", serving, Routes("serving", Group(NEW, ("127.0.0.1:18101",))))
    coming = Canary(Group(NEW, ("127.0.0.1:18101",)), 25.0, FOREVER)
    canary = [*_change("1", OLD, Kind.PROMOTE), *_change("2", NEW, Kind.PROMOTE)[:-2]]
    _target(folder / "canary", canary, Routes("canary", Group(OLD, ("127.0.0.1:18100",)), coming))
    deploy = folder / "deploy.yaml"
    local = "\n".join(f"  {name}: {{kind: local, root: {folder / name}}}" for name in ("serving", "canary", "empty"))
    remote = (
        "  far: {kind: ssh, root: /srv/o, interpreter: /usr/bin/python3, hosts: [{name: one, address: one.invalid}]}"
    )
    deploy.write_text(f"targets:\n{local}\n{remote}\n", encoding="utf-8")
    return deploy


def _target(root: Path, entries: Sequence[Entry], routes: Routes) -> None:
    (root / "router").mkdir(parents=True)
    lines = [entry.model_dump_json(exclude_defaults=True) for entry in entries]
    (root / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "router" / "routes.conf").write_text(include_file(routes, RouterSpec(), "log"), encoding="utf-8")
    for release in (OLD, NEW):
        folder = root / "releases" / release
        folder.mkdir(parents=True)
        (folder / RELEASE).write_text(_release(release).model_dump_json(), encoding="utf-8")
        (folder / tree.SUMS).write_text(tree.sums(folder), encoding="utf-8")


def _change(name: str, release: str, kind: Kind) -> list[Entry]:
    replica = Replica(host="local", port=18100 + (release == NEW))
    steps = ["preflight", "start", "canary-25", FULL]
    marks = [_entry(name, kind, release, mark, step) for step in steps for mark in (Mark.BEGUN, Mark.DONE)]
    opened = _entry(name, kind, release, Mark.OPEN).model_copy(update={"replicas": (replica,)})
    closed = _entry(name, kind, release, Mark.CLOSED).model_copy(update={"warm_until": float(FOREVER)})
    return [opened, *marks, closed]


def _undone(name: str, release: str) -> list[Entry]:
    failed = _entry(name, Kind.PROMOTE, release, Mark.FAILED, "smoke")
    why = {"reason": "two answers are not the sweep's <b>here</b>"}
    opened, *_ = _change(name, release, Kind.PROMOTE)
    return [opened, failed.model_copy(update=why), _entry(name, Kind.PROMOTE, release, Mark.UNDONE)]


def _entry(change: str, kind: Kind, release: str, mark: Mark, step: str = "") -> Entry:
    when = f"2026-03-14T09:0{change}:00.000+00:00"
    return Entry(time=when, change=change, kind=kind, release=release, mark=mark, step=step)


def _release(name: str) -> ReleaseRecord:
    one = Interval(estimate=100.0, low=95.0, high=105.0)
    budget = 15 if name == NEW else None
    arm = "ddtree-budget=15" if name == NEW else "dflash"
    return ReleaseRecord(
        run="winner-synthetic",
        profile="local",
        verdict="winner",
        sentence="SYNTHETIC",
        arm=Arm(arm, "synthetic", Method.DDTREE if budget else Method.DFLASH, budget),
        deployment=Deployment(
            "synthetic 0", "python", "t", "0" * 64, "d", "1" * 64, "cpu", "bfloat16", 2, 4, 2048, ready_timeout_s=60
        ),
        identity={},
        gpu=None,
        gpus=0,
        gpu_memory_bytes=0,
        gpu_driver=None,
        cpu="Synthetic CPU 9000",
        memory_bytes=2**34,
        commit=None,
        max_tokens=96,
        request_timeout_s=60,
        near_tie_gap=0.25,
        confidence=0.95,
        promise=Promise(
            concurrency=1,
            acceptance_length=one,
            tpot_ms=one,
            output_tok_s=one,
            ttft_ms_p90=200,
            tpot_ms_p90=20,
        ),
        smoke=[],
        smoke_acceptance_length=one,
        smoke_tpot_ms=one,
    )
