"""What promotion refuses, each with the reason and the override where there is one. Pure but for the facts asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.gpus import accelerator_name
from orchestrator.promotion.host import HostFacts
from orchestrator.promotion.release import ReleaseRecord
from orchestrator.promotion.spec import TargetSpec
from orchestrator.records import Decision, Verdict

LOCAL_PROFILE = "local"
_CRON = "crontab"
_SPARE_BYTES = 256 * 2**20
_TOOLS = {"systemd": "systemctl", "compose": "docker"}
OVERRIDES = ("tie", "failed-gates", "invalid-trials", "unchecked", "hardware", "environment")


@dataclass(frozen=True)
class Refusal:
    """Why not. `override`: the value of --allow that goes on all the same; None where nothing does."""

    reason: str
    override: str | None = None

    def words(self) -> str:
        return f"{self.reason} (--allow {self.override} goes on all the same)" if self.override else self.reason


def standing_refusals(refusals: Sequence[Refusal], allowed: Sequence[str]) -> list[Refusal]:
    """Those that no override lifts."""
    return [refusal for refusal in refusals if refusal.override not in allowed or refusal.override is None]


def of_evidence(decision: Decision) -> list[Refusal]:
    """What the run itself forbids, wherever it would go."""
    found = []
    if decision.verdict is not Verdict.WINNER:
        found.append(Refusal(f"the run ended in a {decision.verdict.value}: {decision.sentence}", "tie"))
        failed = [gate.arm for gate in decision.gates if not gate.passed]
        if failed:
            found.append(Refusal(f"the equivalence gate failed for {', '.join(failed)}", "failed-gates"))
    if decision.invalid_trials:
        found.append(Refusal(f"the run has invalid trials, first {decision.invalid_trials[0]}", "invalid-trials"))
    if decision.unchecked:
        found.append(Refusal(f"equivalence was not checked: {decision.unchecked}", "unchecked"))
    return found


def of_decision(decision: Decision, record: ReleaseRecord, target: str, spec: TargetSpec) -> list[Refusal]:
    """What the evidence forbids, for this target."""
    found = of_evidence(decision)
    if record.profile == LOCAL_PROFILE and not spec.allow_local_profile:
        found.append(
            Refusal(f"measured under profile local, which target {target} does not allow (allow_local_profile)")
        )
    if record.deployment.image and not spec.image:
        found.append(Refusal(f"measured in an image: target {target} has to have `supervisor: compose` and an `image`"))
    return found


def of_host(name: str, record: ReleaseRecord, facts: HostFacts, cpu: str, needed_bytes: int) -> list[Refusal]:
    """What a host's hardware forbids. `cpu` is its model name, `needed_bytes` what would be uploaded to it."""
    found = _of_gpus(name, record, facts) if record.gpu else _of_cpu(name, record, facts, cpu)
    if facts.disk_free_bytes < needed_bytes + _SPARE_BYTES:
        found.append(
            Refusal(
                f"{name}: {_gib(facts.disk_free_bytes)} free on the disk, {_gib(needed_bytes + _SPARE_BYTES)} needed"
            )
        )
    return found


def _of_gpus(name: str, record: ReleaseRecord, facts: HostFacts) -> list[Refusal]:
    if not facts.gpus:
        return [Refusal(f"{name}: no GPU; the run was measured on {record.gpu}")]
    found = []
    for gpu in facts.gpus:
        if accelerator_name(gpu.name) != record.gpu:
            found.append(Refusal(f"{name}: {gpu.name}; the run was measured on {record.gpu}", "hardware"))
        if gpu.memory_bytes < record.gpu_memory_bytes:
            less = f"{_gib(gpu.memory_bytes)} of GPU memory, {_gib(record.gpu_memory_bytes)} when measured"
            found.append(Refusal(f"{name}: {less}", "environment"))
        if record.gpu_driver and _version(gpu.driver) < _version(record.gpu_driver):
            found.append(Refusal(f"{name}: driver {gpu.driver}, {record.gpu_driver} when measured", "environment"))
    return list(dict.fromkeys(found))


def _of_cpu(name: str, record: ReleaseRecord, facts: HostFacts, cpu: str) -> list[Refusal]:
    found = []
    if cpu != record.cpu:
        found.append(Refusal(f"{name}: {cpu}; the run was measured on {record.cpu}", "hardware"))
    if facts.memory_bytes < record.memory_bytes:
        less = f"{_gib(facts.memory_bytes)} of memory, {_gib(record.memory_bytes)} when measured"
        found.append(Refusal(f"{name}: {less}", "environment"))
    return found


def of_supervisor(name: str, spec: TargetSpec, facts: HostFacts) -> list[Refusal]:
    """A supervisor that the host does not have."""
    tool = _TOOLS.get(spec.supervisor)
    missing = tool is not None and tool not in facts.tools
    return [Refusal(f"{name}: supervisor {spec.supervisor} needs {tool}, which is not there")] if missing else []


def of_packages(name: str, differing: Sequence[str]) -> list[Refusal]:
    """Another environment than the measured one."""
    if not differing:
        return []
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    reason = f"{name}: the interpreter's packages are not the measured ones: {', '.join(differing[:3])}{more}"
    return [Refusal(reason, "environment")]


def of_image(name: str, measured: str | None, there: str | None) -> list[Refusal]:
    """Another image than the measured one. `there`: the content id of the host's; None where it has none yet."""
    if measured is None or there is None or there == measured:
        return []
    return [Refusal(f"{name}: the image is {there[:19]}, the measured one {measured[:19]}", "environment")]


def after_reboot(spec: TargetSpec, facts: Mapping[str, HostFacts]) -> str:
    """What of a target comes back by itself, in words. `facts` begins with the host of the router."""
    router = ["router"] if spec.router.mode == "own" else []
    if spec.supervisor == "systemd":
        return f"systemd starts {' and '.join(['the replicas', *router])} again"
    kept = ["replicas", *router] if spec.supervisor == "process" else router
    hosts = list(facts) if spec.supervisor == "process" else list(facts)[: len(router)]
    without = [name for name in hosts if _CRON not in facts[name].tools]
    docker = ["docker starts the replicas again"] if spec.supervisor == "compose" else []
    if without:
        stay = (
            f"no cron on {', '.join(without)}: {' and '.join(kept)} stay down there until the same command is run again"
        )
        return "; ".join([*docker, stay])
    return "; ".join([*docker, *([f"cron starts {' and '.join(kept)} again"] if kept else [])])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
