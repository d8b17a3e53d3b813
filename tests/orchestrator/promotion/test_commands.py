import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli.app import app
from orchestrator.errors import InputError
from orchestrator.promotion.release import Release
from orchestrator.store import RunStore
from tests.orchestrator.promotion import making
from tests.orchestrator.promotion.bench import PROGRAM, Bench, opened
from tests.orchestrator.promotion.traffic import traffic


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, made: dict[str, Release]) -> Iterator[Bench]:
    with opened(tmp_path_factory.mktemp("commands")) as found:
        found.promote(made["first"])
        yield found


@pytest.fixture
def invoke(bench: Bench, made: dict[str, Release], measured: dict[str, RunStore]) -> Any:
    """A command in this process on the bench's files."""
    environment = {
        "ORCHESTRATE_DEPLOY": str(bench.folder / "deploy.yaml"),
        "ORCHESTRATE_RELEASES": str(made["first"].folder.parent),
        "ORCHESTRATE_RUNS": str(measured["first"].folder.parent),
    }

    def run(*arguments: str | Path) -> Result:
        return CliRunner(env=environment).invoke(app, [str(a) for a in arguments], catch_exceptions=False)

    return run


def test_a_dry_run_shows_the_plan_and_changes_nothing(bench: Bench, invoke: Any, made: dict[str, Release]) -> None:
    before = (bench.root / "journal.jsonl").read_bytes()
    shown = invoke("promote", "second", "--to", "bench", "--dry-run")
    assert shown.exit_code == 0
    for words in (made["second"].name, "fake (simulated)", made["first"].id, "20 % for 0 s", "warm for 3600 s"):
        assert words in shown.output
    assert (bench.root / "journal.jsonl").read_bytes() == before
    assert len(bench.units()) == 1


def test_nobody_to_confirm_is_said(invoke: Any) -> None:
    with pytest.raises(InputError, match="--yes goes on without asking"):
        invoke("promote", "second", "--to", "bench")
    with pytest.raises(InputError, match="there is no release before to go back to"):
        invoke("rollback", "bench", "--yes")


def test_scripts_get_one_document(bench: Bench, invoke: Any, made: dict[str, Release], tmp_path: Path) -> None:
    first, second = made["first"], made["second"]
    planned = json.loads(invoke("promote", "second", "--to", "bench", "--dry-run", "--json").stdout)
    assert (planned["outcome"], planned["release"], planned["plan"][0][:10]) == ("planned", second.id, "release   ")
    with opened(tmp_path) as target:
        target.promote(first)
        deploy = ["--deploy", target.folder / "deploy.yaml", "--json"]
        done = json.loads(invoke("promote", "second", "--to", "bench", "--yes", *deploy).stdout)
        assert (done["outcome"], done["serving"], done["left_open"]) == ("done", second.id, False)
        steps = ["old release", "upload", "start", "ready", "smoke", "canary 20 %", "full", "drain"]
        assert [step["step"] for step in done["steps"] if step["done"]] == steps
        planned = json.loads(invoke("rollback", "bench", "--dry-run", *deploy).stdout)
        assert f"bench goes from {second.id} to {first.id}, which is kept warm" in planned["plan"][0]
        assert target.serving() == second.id
        shown = invoke("rollback", "bench", "--yes", *deploy)
        done = json.loads(shown.stdout)
        assert (done["outcome"], done["serving"], [step["step"] for step in done["steps"]]) == (
            "done", first.id, ["ready", "full", "drain"],
        )  # fmt: skip
        assert "all sessions go to" in shown.stderr


@pytest.mark.parametrize(
    ("changes", "outcome", "code", "message"),
    [
        ({"environment": {"FAKE_ENGINE_DEFECTS": '{"wrong_after": 3}'}}, "failed", 6, "the answers are not the run's"),
        ({"allow_local_profile": False}, "refused", 2, "which target bench does not allow"),
    ],
)
def test_scripts_hear_why_not(
    bench: Bench,
    made: dict[str, Release],
    tmp_path: Path,
    changes: dict[str, Any],
    outcome: str,
    code: int,
    message: str,
) -> None:
    """By the program itself: the document is all of stdout, and people read stderr."""
    deploy = making.write_deploy(tmp_path / "deploy.yaml", bench=making.target(bench.root, bench.port, **changes))
    words = ["promote", made["second"].id, "--to", "bench", "--yes", "--json", "--deploy", str(deploy)]
    command = [sys.executable, *PROGRAM, *words, "--releases", str(made["second"].folder.parent)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["outcome"]) == (code, outcome)
    assert message in document["message"]
    assert message in ended.stderr
    if outcome == "refused":
        assert document["refusals"][0]["override"] is None
    else:
        assert (document["serving"], document["left_open"]) == (made["first"].id, False)
        assert [step["step"] for step in document["steps"] if not step["done"]] == ["smoke"]


def test_refusals_are_listed_with_their_overrides(
    bench: Bench, invoke: Any, measured: dict[str, RunStore], tmp_path: Path
) -> None:
    store = RunStore(tmp_path / "tied")
    shutil.copytree(measured["first"].folder, store.folder)
    making.change_decision(store, verdict="tie", arm="autoregressive", sentence="tie: keep autoregressive")
    releases = ["--releases", tmp_path / "releases"]
    with pytest.raises(InputError, match=r"refused: the run ended in a tie: .*\(--allow tie goes on all the same\)"):
        invoke("promote", store.folder, "--to", "bench", "--yes", *releases)
    shown = invoke("promote", store.folder, "--to", "bench", "--dry-run", "--allow", "tie", *releases)
    assert "allowed   the run ended in a tie" in shown.output
    with pytest.raises(InputError, match="--allow nonsense: there is no such reason; there are tie"):
        invoke("promote", store.folder, "--to", "bench", "--allow", "nonsense")
    strict = making.target(bench.root, bench.port, allow_local_profile=False, ports=[1, 1])
    making.write_deploy(tmp_path / "strict.yaml", bench=strict)
    with pytest.raises(InputError) as caught:
        invoke("promote", "second", "--to", "bench", "--yes", "--deploy", tmp_path / "strict.yaml")
    assert "which target bench does not allow" in str(caught.value)


def test_a_port_taken_by_something_else_is_refused(invoke: Any, tmp_path: Path, made: dict[str, Release]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports = [port, port]
        deploy = making.write_deploy(tmp_path / "d.yaml", taken=making.target(tmp_path / "root", port, ports=ports))
        with pytest.raises(InputError) as caught:
            invoke("promote", made["first"].id, "--to", "taken", "--yes", "--deploy", deploy)
    assert f"port {port} is taken by something that is not this target's router" in str(caught.value)
    assert f"0 ports of {port} to {port} are free, 1 are needed" in str(caught.value)
    assert not (tmp_path / "root" / "units").exists()


def test_status_tells_a_target_from_a_run(bench: Bench, invoke: Any, made: dict[str, Release]) -> None:
    shown = invoke("status", "bench", "--json")
    found = json.loads(shown.stdout)
    (release,) = found["releases"]
    assert (release["release"], release["part"], release["share"]) == (made["first"].id, "serving", 100.0)
    assert release["healthy"] is True
    assert found["live"]["probe_failures"] == 0
    assert found["lost_by_reboot"] == []
    assert found["live"]["probe_acceptance_length"] == pytest.approx(3.0, abs=0.05)
    assert f"bench: {made['first'].id} (chain) serves and keeps its promise" in invoke("status", "bench").output
    assert "first" in invoke("status", "first").output
    with pytest.raises(InputError, match="no run nothing"):
        invoke("status", "nothing")


@pytest.mark.slow
def test_watch_ends_with_7_when_production_is_below_its_promise(
    bench: Bench, invoke: Any, made: dict[str, Release], tmp_path: Path
) -> None:
    shown = invoke("watch", "bench", "--for", "10", "--json")
    assert (shown.exit_code, json.loads(shown.stdout)["drifted"]) == (0, [])
    with opened(tmp_path) as drifting:
        drifting.promote(made["first"])
        drifting.kill_replicas(made["first"].id)
        with drifting.site({"tokens_per_step": 1}):
            assert "serves already" in drifting.promote(made["first"], {"tokens_per_step": 1})
        with traffic(drifting.port, at_once=2):
            deploy = drifting.folder / "deploy.yaml"
            shown = invoke("watch", "bench", "--for", "12", "--json", "--deploy", deploy)
        assert shown.exit_code == 7
        drifted = json.loads(shown.stdout)["drifted"]
        assert "acceptance length of the traffic 1.00" in drifted[0]
        assert "the drafter no longer fits the traffic" in drifted[0]
        drifting.kill_replicas(made["first"].id)
        shown = invoke("watch", "bench", "--for", "10", "--json", "--deploy", deploy)
        assert shown.exit_code == 7
        assert "it does not serve" in json.loads(shown.stdout)["drifted"][0]


def test_releases_are_listed_and_a_tampered_one_stands_out(
    invoke: Any, made: dict[str, Release], measured: dict[str, RunStore], tmp_path: Path
) -> None:
    rows = json.loads(invoke("releases", "--json").stdout)
    assert {row["release"] for row in rows} >= {made["first"].id, made["second"].id}
    copied = tmp_path / made["first"].name
    shutil.copytree(made["first"].folder, copied)
    (copied / "sweep.yaml").write_text("question: other\n")
    (row,) = json.loads(invoke("releases", "--json", "--releases", tmp_path).stdout)
    assert "tampered with: sweep.yaml was changed" in row["error"]
    with pytest.raises(InputError, match="never deployed"):
        invoke("promote", made["first"].id, "--to", "bench", "--yes", "--releases", tmp_path)
