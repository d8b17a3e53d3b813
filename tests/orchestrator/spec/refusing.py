from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.spec import SweepSpec


def refused(sweep: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        SweepSpec.model_validate(sweep)
    return str(caught.value)
