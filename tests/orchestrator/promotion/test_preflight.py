from typing import Any

import pytest

from orchestrator.promotion.host import Gpu, HostFacts
from orchestrator.promotion.packages import differences
from orchestrator.promotion.preflight import (
    Refusal,
    after_reboot,
    of_decision,
    of_host,
    of_image,
    of_packages,
    of_supervisor,
    standing_refusals,
)
from orchestrator.promotion.release import Release, ReleaseRecord
from orchestrator.promotion.spec import LocalTarget
from orchestrator.records import Decision, GateResult
from orchestrator.store import RunStore

GIB = 2**30
H200 = Gpu("NVIDIA H200", "GPU-1", 141 * GIB, "550.54.14")
TARGET = LocalTarget(kind="local", allow_local_profile=True)


def facts(*gpus: Gpu, **changes: Any) -> HostFacts:
    values: dict[str, Any] = {
        "disk_free_bytes": 10 * GIB,
        "memory_bytes": 64 * GIB,
        "gpus": gpus,
        "kernel": "6.1",
        "boot_id": "b",
        "tools": frozenset({"nginx"}),
    }
    return HostFacts(**values | changes)


@pytest.fixture
def record(made: dict[str, Release]) -> ReleaseRecord:
    return made["first"].record.model_copy(update={"cpu": "A CPU", "memory_bytes": 32 * GIB})


@pytest.fixture
def on_gpu(record: ReleaseRecord) -> ReleaseRecord:
    measured = {"gpu": "H200", "gpus": 1, "gpu_memory_bytes": 141 * GIB, "gpu_driver": "550.54.14"}
    return record.model_copy(update=measured)


def texts(refusals: list[Refusal]) -> list[tuple[str, str | None]]:
    return [(refusal.reason, refusal.override) for refusal in refusals]


def decided(measured: dict[str, RunStore], **changes: Any) -> Decision:
    decision = measured["first"].decision()
    assert decision is not None
    return Decision.model_validate(decision.model_dump() | changes)


def test_a_winner_without_a_blemish_is_not_refused(measured: dict[str, RunStore], record: ReleaseRecord) -> None:
    clean = decided(measured, invalid_trials=[], unchecked="")
    assert of_decision(clean, record, "local", TARGET) == []
    assert of_host("a", record, facts(), "A CPU", GIB) == []


@pytest.mark.parametrize(
    ("changes", "reason", "override"),
    [
        ({"verdict": "tie", "sentence": "keep it"}, "the run ended in a tie: keep it", "tie"),
        (
            {"invalid_trials": ["chain at concurrency 1, block 0: noise"]},
            "invalid trials, first chain",
            "invalid-trials",
        ),
        ({"unchecked": "the gate is switched off"}, "equivalence was not checked: the gate", "unchecked"),
    ],
)
def test_what_the_evidence_forbids_can_be_lifted_by_name(
    measured: dict[str, RunStore], record: ReleaseRecord, changes: dict[str, Any], reason: str, override: str
) -> None:
    (refusal,) = of_decision(
        decided(measured, **{"invalid_trials": [], "unchecked": ""} | changes), record, "local", TARGET
    )
    assert reason in refusal.reason
    assert refusal.override == override
    assert standing_refusals([refusal], []) == [refusal]
    assert standing_refusals([refusal], [override]) == []
    assert f"--allow {override}" in refusal.words()


def test_a_tie_because_of_a_failed_gate_says_so(measured: dict[str, RunStore], record: ReleaseRecord) -> None:
    gate = GateResult(
        arm="chain", prompts=8, exact=7, near_ties=0, violations=1, near_tie_gap=0, passed=False, reason="differs"
    )
    decision = decided(measured, verdict="tie", gates=[gate], invalid_trials=[], unchecked="")
    found = texts(of_decision(decision, record, "local", TARGET))
    assert found[1] == ("the equivalence gate failed for chain", "failed-gates")


def test_a_local_profile_needs_a_target_that_allows_it(measured: dict[str, RunStore], record: ReleaseRecord) -> None:
    strict = LocalTarget(kind="local")
    (refusal,) = of_decision(decided(measured, invalid_trials=[], unchecked=""), record, "prod", strict)
    assert "measured under profile local, which target prod does not allow" in refusal.reason
    assert standing_refusals([refusal], ["tie", "hardware"]) == [refusal]


def test_hardware_other_than_measured(record: ReleaseRecord, on_gpu: ReleaseRecord) -> None:
    assert texts(of_host("a", record, facts(), "Other CPU", 0)) == [
        ("a: Other CPU; the run was measured on A CPU", "hardware")
    ]
    other = Gpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "GPU-2", 141 * GIB, "570.1")
    (refusal,) = of_host("a", on_gpu, facts(other), "A CPU", 0)
    assert refusal.override == "hardware"
    assert "the run was measured on H200" in refusal.reason
    assert texts(of_host("a", on_gpu, facts(), "A CPU", 0)) == [("a: no GPU; the run was measured on H200", None)]
    assert of_host("a", on_gpu, facts(H200), "Other CPU", 0) == []


def test_less_than_measured(record: ReleaseRecord, on_gpu: ReleaseRecord) -> None:
    assert texts(of_host("a", record, facts(memory_bytes=16 * GIB), "A CPU", 0)) == [
        ("a: 16.0 GiB of memory, 32.0 GiB when measured", "environment")
    ]
    older = Gpu("NVIDIA H200", "GPU-1", 80 * GIB, "545.9.1")
    assert texts(of_host("a", on_gpu, facts(older), "A CPU", 0)) == [
        ("a: 80.0 GiB of GPU memory, 141.0 GiB when measured", "environment"),
        ("a: driver 545.9.1, 550.54.14 when measured", "environment"),
    ]
    newer = Gpu("NVIDIA H200", "GPU-1", 141 * GIB, "550.100.1")
    assert of_host("a", on_gpu, facts(newer), "A CPU", 0) == []


def test_a_disk_without_room_is_not_negotiable(record: ReleaseRecord) -> None:
    assert texts(of_host("a", record, facts(disk_free_bytes=GIB), "A CPU", GIB)) == [
        ("a: 1.0 GiB free on the disk, 1.2 GiB needed", None)
    ]
    assert of_host("a", record, facts(disk_free_bytes=2 * GIB), "A CPU", GIB) == []


def test_packages_other_than_measured() -> None:
    measured = {"torch": ["2.9", "aa"], "numpy": ["2.0", "bb"], "rich": ["13", "cc"]}
    here = {"torch": ["2.8", "zz"], "numpy": ["2.0", "b0"], "extra": ["1", "dd"]}
    found = differences(measured, here)
    assert found == ["extra is added", "numpy 2.0 has other files", "rich is missing", "torch 2.8 instead of 2.9"]
    (refusal,) = of_packages("a", found)
    assert refusal.override == "environment"
    assert refusal.reason.endswith("rich is missing and 1 more")
    assert differences(measured, measured) == []
    assert of_packages("a", []) == []


def test_another_image_than_measured() -> None:
    measured, other = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    assert texts(of_image("a", measured, other)) == [
        ("a: the image is sha256:bbbbbbbbbbbb, the measured one sha256:aaaaaaaaaaaa", "environment")
    ]
    assert of_image("a", measured, measured) == of_image("a", measured, None) == of_image("a", None, other) == []


def test_the_plan_says_what_comes_back_after_a_reboot() -> None:
    cron, bare = facts(tools=frozenset({"crontab"})), facts()
    nginx = {"mode": "include", "include_path": "/etc/nginx/conf.d/o.conf"}
    image = "registry.invalid/engine@sha256:" + "0" * 64

    def target(**changes: Any) -> LocalTarget:
        return LocalTarget.model_validate({"kind": "local"} | changes)

    for changes, hosts, words in [
        ({}, {"a": cron}, "cron starts replicas and router again"),
        ({}, {"a": cron, "b": bare}, "no cron on b: replicas and router stay down there until the same command is run"),
        ({"router": nginx}, {"a": cron}, "cron starts replicas again"),
        ({"supervisor": "systemd"}, {"a": bare}, "systemd starts the replicas and router again"),
        ({"supervisor": "systemd", "router": nginx}, {"a": bare}, "systemd starts the replicas again"),
        ({"supervisor": "compose", "image": image}, {"a": cron, "b": bare}, "docker starts the replicas again; cron"),
        ({"supervisor": "compose", "image": image}, {"a": bare}, "the replicas again; no cron on a: router stay"),
        ({"supervisor": "compose", "image": image, "router": nginx}, {"a": bare}, "docker starts the replicas again"),
    ]:
        assert words in after_reboot(target(**changes), hosts)


def test_a_supervisor_that_the_host_does_not_have() -> None:
    systemd = LocalTarget(kind="local", supervisor="systemd")
    assert texts(of_supervisor("a", systemd, facts())) == [
        ("a: supervisor systemd needs systemctl, which is not there", None)
    ]
    assert of_supervisor("a", systemd, facts(tools=frozenset({"systemctl"}))) == []
    assert of_supervisor("a", TARGET, facts()) == []
