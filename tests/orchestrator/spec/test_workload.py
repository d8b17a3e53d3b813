import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.spec import load_spec
from tests.orchestrator.spec.refusing import refused
from tests.orchestrator.sweeps import fake_sweep, write_sweep


@pytest.mark.parametrize(
    ("arrivals", "complaint"),
    [
        ({"pattern": "burst"}, "'closed', 'constant', 'poisson', 'gamma', 'ramp' or 'trace'"),
        ({"pattern": "poisson"}, "pattern poisson takes `rate`, given: none"),
        ({"rate": 3}, "pattern closed takes no other key, given: rate"),
        ({"pattern": "gamma", "rate": 3}, "pattern gamma takes `rate` and `burstiness`, given: rate"),
        ({"pattern": "ramp", "rate": 3, "to_rate": 0}, "greater than 0"),
        ({"pattern": "trace", "trace": "t.csv", "rate": 1}, "pattern trace takes `trace`, given: rate, trace"),
        ({"pattern": "constant", "rate": 3, "speed": 2}, "`speed` goes with pattern trace"),
    ],
)
def test_arrivals_that_make_no_sense_are_refused_with_their_line(
    tmp_path: Path, arrivals: dict[str, Any], complaint: str
) -> None:
    path = write_sweep(tmp_path, fake_sweep(workload={"arrivals": arrivals}))
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert complaint in str(caught.value)
    assert re.match(rf"{path}:\d+: workload\.arrivals", str(caught.value))
    assert "\n" not in str(caught.value)


def test_an_open_loop_takes_one_level() -> None:
    workload = {"arrivals": {"pattern": "constant", "rate": 1}, "concurrency": [1, 2]}
    assert "arrivals of pattern constant take one level" in refused(fake_sweep(workload=workload))
