import json
from pathlib import Path

import pytest

from engines.base import EngineError
from engines.sglang import requests


@pytest.mark.parametrize("limit", [None, 10**30, 1e30, "long"])
def test_a_model_without_a_length_limit_is_refused_before_a_server_starts(tmp_path: Path, limit: object) -> None:
    config = {} if limit is None else {"model_max_length": limit}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError, match="has no model_max_length"):
        requests.check_tokenizer(str(tmp_path))


def test_a_model_with_a_length_limit_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 8192}')
    requests.check_tokenizer(str(tmp_path))
