from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engines.base import SpecCounters
from orchestrator.compare import Change, RunComparison, compare_runs
from orchestrator.errors import InputError
from orchestrator.identity import differences
from orchestrator.records import REQUEST_COLUMNS
from orchestrator.spec import dump_spec
from orchestrator.store import RunStore
from tests.orchestrator.test_decision import GAINS, plan, records, requests

ENVIRONMENT: dict[str, Any] = {
    "cpu": "EPYC",
    "gpus": [{"name": "H200", "uuid": "GPU-1", "driver": "570"}],
    "inputs": {"prompts": {"digest": "p"}, "engines": {"fake": {"target_digest": "t", "drafter_digest": "d1"}}},
}
PLAN = plan()


def stored(
    folder: Path, gains: dict[str, float], seed: int, environment: Any = ENVIRONMENT, day: float = 1.0
) -> RunStore:
    """A run whose arms have these speed-ups, on a machine that was `day` times as fast."""
    store = RunStore(folder)
    store.create(dump_spec(PLAN.spec), environment)
    rows = requests(PLAN, {arm: gain * day for arm, gain in gains.items()}, seed)
    for record in records(PLAN):
        own = rows.loc[rows["trial"] == record.digest, list(REQUEST_COLUMNS)]
        store.trials.write(record, own, pd.DataFrame(), SpecCounters(), None, b"")
    return store


def compared(folder: Path, after: dict[str, float], day: float = 1.0, **changes: Any) -> RunComparison:
    """Against GAINS. The prompts' content is that of the seed, which the runs share."""
    one, two = stored(folder / "a", GAINS, 0), stored(folder / "b", after, 0, ENVIRONMENT | changes, day)
    return compare_runs(one, two, 0.02)


def changes(found: RunComparison) -> dict[tuple[str, int], Change]:
    return {(delta.arm, delta.concurrency): delta.change for delta in found.deltas}


def test_the_same_again_is_no_regression(tmp_path: Path) -> None:
    one, two = stored(tmp_path / "a", GAINS, 0), stored(tmp_path / "b", GAINS, 0)
    found = compare_runs(one, two, 0.02)
    assert set(changes(found).values()) == {Change.SAME}
    assert found.change is Change.SAME
    assert found.sentence.startswith("no regression: none of 8 arms is more than 2 % slower")
    assert found.differences == []


def test_a_slower_drafter_is_found_and_named(tmp_path: Path) -> None:
    found = compared(tmp_path, GAINS | {"dflash": 1.08})
    regressed = {key for key, change in changes(found).items() if change is Change.REGRESSED}
    assert regressed == {("dflash", 1), ("dflash", 4)}
    delta = next(delta for delta in found.deltas if (delta.arm, delta.concurrency) == ("dflash", 1))
    assert delta.relative is not None
    assert delta.relative.estimate == pytest.approx(1.08 / 1.2, rel=0.01)
    assert delta.speed.low < 0.9 < delta.speed.high
    assert found.sentence.startswith("regressed: dflash at 1 (0.90")


def test_a_faster_arm_is_told_and_is_no_failure(tmp_path: Path) -> None:
    found = compared(tmp_path, GAINS | {"dflash": 1.4})
    assert found.change is Change.IMPROVED
    assert changes(found)["dflash", 1] is Change.IMPROVED


def test_a_slower_day_is_the_machines_and_no_arms(tmp_path: Path) -> None:
    """Everything 10 % slower: only the baseline says so; the arms are as fast against it as before."""
    found = compared(tmp_path, GAINS, day=0.9)
    by_arm = {arm: change for (arm, _), change in changes(found).items()}
    assert by_arm.pop("autoregressive") is Change.REGRESSED
    assert set(by_arm.values()) == {Change.SAME}


def test_what_noise_hides_is_not_called_the_same(tmp_path: Path) -> None:
    """Other draws of content for the same prompts: 10 % of noise a prompt, 2 % in all."""
    one, two = stored(tmp_path / "a", GAINS, 0), stored(tmp_path / "b", GAINS, 1)
    found = compare_runs(one, two, 0.001)
    assert found.change is Change.UNCLEAR


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"cpu": "Xeon"}, "cpu"),
        ({"gpus": [{"name": "H100", "uuid": "GPU-1", "driver": "570"}]}, "gpus.0.name"),
        ({"inputs": ENVIRONMENT["inputs"] | {"prompts": {"digest": "q"}}}, "inputs.prompts.digest"),
        ({"inputs": ENVIRONMENT["inputs"] | {"workload": {"max_tokens": 5}}}, None),
        ({"inputs": {"engines": {"fake": {"target_digest": "u"}}}}, "inputs.engines.fake.target_digest"),
    ],
)
def test_another_question_is_refused(change: dict[str, Any], what: str | None) -> None:
    found = [item.what for item in differences(ENVIRONMENT, ENVIRONMENT | change) if item.refused]
    assert found == ([what] if what else [])


def test_a_refusal_names_what_differs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^a and b cannot be compared: cpu: EPYC and Xeon$"):
        compared(tmp_path, GAINS, cpu="Xeon")


def test_another_drafter_or_driver_is_told_and_compared(tmp_path: Path) -> None:
    inputs = {"prompts": {"digest": "p"}, "engines": {"fake": {"target_digest": "t", "drafter_digest": "d2"}}}
    found = compared(tmp_path, GAINS, gpus=[{"name": "H200", "uuid": "GPU-2", "driver": "580"}], inputs=inputs)
    told = {item.what: (item.before, item.after) for item in found.differences}
    assert told == {"gpus.0.driver": ("570", "580"), "inputs.engines.fake.drafter_digest": ("d1", "d2")}


def test_prompts_of_one_name_and_two_texts_are_refused(tmp_path: Path) -> None:
    one = stored(tmp_path / "a", GAINS, 0)
    two = stored(tmp_path / "b", GAINS, 0)
    path = next(iter(sorted(two.trials.folder.glob("*/requests.parquet"))))
    frame = pd.read_parquet(path)
    frame["prompt_token_ids"] = [[1, 2, 3]] * len(frame)
    frame.to_parquet(path)
    with pytest.raises(InputError, match="is not the same text in both runs"):
        compare_runs(one, two, 0.02)


def test_runs_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    one = stored(tmp_path / "a", GAINS, 0)
    empty = RunStore(tmp_path / "b")
    empty.create(dump_spec(PLAN.spec), ENVIRONMENT)
    with pytest.raises(InputError, match="no valid trial to compare"):
        compare_runs(one, empty, 0.02)


def test_what_an_old_run_does_not_say_is_told_and_refuses_nothing() -> None:
    (item,) = differences({"cpu": "EPYC"}, {"cpu": "EPYC", "inputs": {"prompts": {"digest": "p"}}})
    assert (item.what, item.before, item.after, item.refused) == ("inputs.prompts.digest", None, "p", False)
