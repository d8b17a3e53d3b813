import numpy as np
import pandas as pd
import pytest

from orchestrator.metrics import steady_window
from orchestrator.metrics.pauses import longest_silence, pause
from orchestrator.records import Pause
from tests.orchestrator.sample import failed, frame, request

STEP = 0.01


def trial(
    concurrency: int, requests: int = 64, prefill: float = 0.03, stop: tuple[float, float] = (0.0, 0.0)
) -> pd.DataFrame:
    """A closed loop: after `prefill` seconds a chunk each STEP, 10 to 50 of them. `stop`: when all stands still for how
    long."""
    free = [0.0] * concurrency
    rows = []
    for number in range(requests):
        slot = free.index(min(free))
        sent, arrivals = free[slot], free[slot] + prefill + STEP * np.arange(10 + 17 * number % 41)
        free[slot] = arrivals[-1]
        rows.append(stored(_stopped(np.array([sent]), stop)[0], _stopped(arrivals, stop)))
    return frame(*rows)


def _stopped(times: np.ndarray, stop: tuple[float, float]) -> np.ndarray:
    at, still = stop
    return np.where(times > at, times + still, times)


def stored(sent: float, times: np.ndarray) -> dict[str, object]:
    return request(scheduled=sent, sent=sent, first=times[0], last=times[-1], chunk_times=list(times))


def found(requests: pd.DataFrame, concurrency: int) -> Pause | None:
    return pause(requests, steady_window(requests, concurrency))


def seconds(told: Pause | None) -> float | None:
    return None if told is None else told.seconds


def silence(*answers: list[float], window: tuple[float, float] = (0.0, 100.0)) -> float:
    return longest_silence([np.array(times) for times in answers], window)


def test_a_silence_is_one_of_all_answers_under_way() -> None:
    assert silence([1.0, 2.0, 5.0]) == 3.0
    assert silence([1.0, 2.0, 5.0], [1.5, 4.0, 4.5]) == 2.0
    assert silence([1.0, 5.0], [2.0, 2.5]) == 2.5


def test_with_no_answer_under_way_nothing_can_arrive() -> None:
    assert silence([1.0, 2.0], [9.0, 10.5]) == 1.5
    assert silence([1.0], [9.0]) == 0.0


def test_a_silence_counts_as_far_as_it_lies_inside_the_window() -> None:
    assert silence([1.0, 2.0, 5.0], window=(3.0, 100.0)) == 2.0
    assert silence([1.0, 2.0, 5.0], window=(0.0, 3.5)) == 1.5
    assert silence([1.0, 2.0, 5.0], window=(5.0, 6.0)) == 0.0


@pytest.mark.parametrize("concurrency", [1, 2, 8, 32])
def test_a_trial_that_stands_still_is_told_with_its_window(concurrency: int) -> None:
    steady = trial(concurrency)
    start, end = steady_window(steady, concurrency)
    still = 0.3 * (end - start)
    told = found(trial(concurrency, stop=((start + end) / 2, still)), concurrency)
    assert told is not None
    assert told.seconds == pytest.approx(still, abs=STEP + 1e-6)
    assert told.window == pytest.approx(end - start + still)


@pytest.mark.parametrize("concurrency", [1, 2, 8, 32])
@pytest.mark.parametrize("prefill", [0.001, 0.05, 2.0])
@pytest.mark.parametrize("requests", [4, 32, 64])
def test_steady_trials_have_none(concurrency: int, prefill: float, requests: int) -> None:
    assert found(trial(concurrency, requests, prefill), concurrency) is None


def test_a_pause_takes_more_than_a_tenth_of_the_window() -> None:
    requests = frame(stored(0.0, np.array([*range(100), *range(120, 220)]) * STEP))
    assert seconds(pause(requests, (0.0, 2.0))) == pytest.approx(0.21)
    assert pause(requests, (0.0, 2.11)) is None


def test_answers_that_stand_still_while_a_prompt_is_read_do_not_pause() -> None:
    """Two answers, the first of which waits a second while the prompt of the second is read."""
    first, second = np.array([*range(80, 100), *range(200, 220)]) * STEP, np.arange(199, 219) * STEP
    prompts_read = frame(stored(0.0, first), stored(0.99, second))
    assert pause(prompts_read, (0.0, 2.2)) is None
    assert seconds(pause(prompts_read.assign(sent=[0.79, 1.98]), (0.0, 2.2))) == pytest.approx(1.0)


def test_slow_steps_are_no_pauses() -> None:
    """A short answer of half a second a step: each step is a fifth of the window."""
    assert found(frame(stored(0.45, np.arange(1, 7) * 0.5)), 1) is None


def test_what_a_busy_machine_does_to_a_trial_of_milliseconds_is_none() -> None:
    for step, told in ((0.0004, False), (0.004, True)):
        requests = frame(stored(0.0, np.array([*range(1, 51), *range(71, 121)]) * step))
        assert (found(requests, 1) is not None) is told


def test_chunks_of_a_request_that_failed_later_did_arrive() -> None:
    times = np.array([*np.arange(0.1, 1.0, 0.01), *np.arange(2.0, 3.0, 0.01)])
    assert found(frame(stored(0.0, times)), 1) is not None
    other = failed(sent=0.9, chunk_times=list(np.arange(0.95, 2.0, 0.05)))
    assert found(frame(stored(0.0, times), other), 1) is None


def test_without_chunk_times_nothing_is_said() -> None:
    paused = trial(2, stop=(1.0, 20.0))
    assert found(paused, 2) is not None
    assert found(paused.drop(columns="chunk_times"), 2) is None
    assert found(paused.assign(chunk_times=None), 2) is None
    assert found(paused.assign(chunk_times=pd.Series([[]] * len(paused))), 2) is None
