import os
import signal
from collections.abc import Iterator

import pytest

from tests.orchestrator.processes import marked, new_mark


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for the engines that a test starts; none may be left when it ends."""
    value = new_mark()
    yield value
    left = marked(value)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}, "an engine was left behind"
