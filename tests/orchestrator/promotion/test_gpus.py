"""A release that takes two GPUs, of an engine with a dialect and a report of its own, on a host behind SSH. No GPU is
here: nvidia-smi is scripted, and so is SGLang."""

import json
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from engines.digests import digest
from engines.sglang.report import served_path
from orchestrator.errors import InputError
from orchestrator.promotion import replicas, tree
from orchestrator.promotion.errors import PromotionError
from orchestrator.promotion.journal import Standing
from orchestrator.promotion.release import ID_LENGTH, RELEASE, Release, SmokePrompt, load_release
from orchestrator.records import Interval
from tests.engines.scripted import BLOCK, model_folder
from tests.engines.sglang import acting, server
from tests.orchestrator.promotion.bench import Bench, opened
from tests.orchestrator.promotion.sshd import Sshd, needs_sshd
from tests.orchestrator.promotion.test_several_hosts import ssh_target
from tests.orchestrator.promotion.traffic import traffic

TOKENS = 13
GPUS = [f"GPU-{number}" for number in range(5)]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nvidia-smi with GPUS; a test may leave fewer."""
    script = tmp_path / "smi" / "nvidia-smi"
    script.parent.mkdir()
    set_gpus(script, GPUS)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    return script


def set_gpus(script: Path, uuids: list[str]) -> None:
    lines = "".join(f"NVIDIA H200, {uuid}, 143771, 580.95.05\n" for uuid in uuids)
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
    script.chmod(0o755)


@pytest.fixture
def release(tmp_path: Path, made: dict[str, Release]) -> Release:
    """As a run of SGLang with our plugin on two GPUs would be frozen."""
    folders = {name: model_folder(tmp_path / name, block_size=BLOCK) for name in ("target", "drafter")}
    site = acting.distribution(tmp_path / "site")
    deployed = acting.deployment(
        interpreter=sys.executable,
        target=str(folders["target"]),
        target_digest=digest(folders["target"]),
        drafter=str(folders["drafter"]),
        drafter_digest=digest(folders["drafter"]),
        environment={"PYTHONPATH": str(site)},
    )
    arm = acting.tree(15)
    identity = {"engine": "sglang", "version": server.VERSION, "method": "ddtree", "budget": 15, "chain": False}
    identity |= {"block_size": BLOCK, "dtype": "bfloat16", "attention_backend": "ddtree"}
    identity |= {"settings": {"prefill_attention_backend": "fa3", "kv_tokens": 9}}
    changes = {"arm": arm, "deployment": deployed, "identity": identity, "gpu": "H200", "gpus": 2}
    smoke = [_prompt(f"p{number}") for number in range(4)]
    steps = (TOKENS - 1) // (server.ACCEPTED + 1)
    exact = Interval(estimate=3.0, low=3.0, high=3.0)
    changes |= {"smoke": smoke, "smoke_acceptance_length": exact, "max_tokens": TOKENS}
    assert all(prompt.verify_steps == steps for prompt in smoke)
    changes |= {"smoke_tpot_ms": Interval(estimate=50.0, low=1.0, high=100.0)}
    return _frozen(made["first"], tmp_path / "releases", **changes)


def _prompt(name: str) -> SmokePrompt:
    content = f"question {name}"
    prompt = list(content.encode())
    steps = (TOKENS - 1) // (server.ACCEPTED + 1)
    return SmokePrompt(
        prompt_id=name,
        task="test",
        messages=[("user", content)],
        prompt_token_ids=prompt,
        token_ids=list(islice(server._tokens(prompt), TOKENS)),
        finish_reason="length",
        verify_steps=steps,
        accepted=server.ACCEPTED * steps,
        tpot_ms=1.0,
    )


def _frozen(like: Release, releases: Path, **changes: Any) -> Release:
    """A release with another record, named by its content as freeze does."""
    folder = releases / "new"
    shutil.copytree(like.folder, folder)
    (folder / RELEASE).write_text(like.record.model_copy(update=changes).model_dump_json(indent=1))
    (folder / tree.SUMS).unlink()
    (folder / tree.SUMS).write_text(tree.sums(folder))
    return load_release(
        folder.rename(releases / f"sglang-{tree.identity((folder / tree.SUMS).read_text())[:ID_LENGTH]}")
    )


@pytest.fixture
def bench(tmp_path: Path, smi: Path) -> Iterator[Bench]:
    """One host behind SSH."""
    host = Sshd(tmp_path / "a", "127.0.0.2")
    try:
        host.start()
        with opened(tmp_path) as found:
            found.changes = ssh_target({"a": host}, tmp_path)
            yield found
    finally:
        host.kill()


def test_a_replica_gets_as_many_gpus_as_were_measured(
    tmp_path: Path, smi: Path, release: Release, made: dict[str, Release]
) -> None:
    with opened(tmp_path) as local, local.site() as site:
        found = replicas.place(site, release, Standing(), {"local": site.first.facts(site.root)})
        assert [replica.gpus for replica in found] == [("GPU-0", "GPU-1"), ("GPU-2", "GPU-3")], "GPU-4 is left over"
        assert len({replica.port for replica in found}) == 2
        assert site.unit(release, found[1]).gpus == ("GPU-2", "GPU-3")
        assert [
            r.gpus for r in replicas.place(site, made["first"], Standing(), {"local": site.first.facts(site.root)})
        ] == [()]
        set_gpus(smi, GPUS[:1])
        with pytest.raises(InputError, match="local: 1 GPUs, a replica needs 2"):
            replicas.place(site, release, Standing(), {"local": site.first.facts(site.root)})


@needs_sshd
@pytest.mark.slow
def test_a_release_of_sglang_comes_to_a_host_behind_ssh(
    bench: Bench, release: Release, made: dict[str, Release]
) -> None:
    """The old release is of another engine, which has neither SGLang's path nor its tokenizer: what is asked of the new
    one has to reach it whatever the shares are. Digests and the plugin's report are the host's."""
    old = made["first"]
    bench.promote(old)
    with traffic(bench.port, at_once=2) as load:
        with pytest.raises(PromotionError, match=r"ready: .*left no report at /tmp/.* on its host"):
            bench.promote(release, environment={"SCRIPTED_SGLANG": "no_report"})
        assert (bench.serving(), bench.shares()) == (old.id, {old.id: 100.0})
        with pytest.raises(PromotionError, match=r"ready: .*the ddtree plugin says 15"):
            bench.promote(release, environment={"SCRIPTED_SGLANG": "other_budget"})
        with pytest.raises(PromotionError, match=r"prefill_attention_backend = 'flashinfer', the measured .* 'fa3'"):
            bench.promote(release, environment={"SCRIPTED_SGLANG": "other_prefill"})
        assert load.failures == []
    assert release.name in bench.promote(release)
    serving = bench.standing().serving
    assert serving is not None
    assert [replica.gpus for replica in serving.replicas] == [("GPU-0", "GPU-1"), ("GPU-2", "GPU-3")]
    for unit in [name for name in bench.units() if release.id in name]:
        state = json.loads((bench.root / "units" / unit / "state.json").read_text())
        variables = Path(f"/proc/{state['server']['pid']}/environ").read_bytes().split(b"\0")
        assert {b"CUDA_VISIBLE_DEVICES=GPU-0,GPU-1", b"CUDA_VISIBLE_DEVICES=GPU-2,GPU-3"} & set(variables)
    assert "answers are the run's" in bench.shown
    for replica in serving.replicas:
        with bench.site() as site:
            served_path(site.deployment(release).target, replica.port).unlink()
