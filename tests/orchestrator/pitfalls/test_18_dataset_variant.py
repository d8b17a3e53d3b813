"""MBPP is not MBPP sanitized: which prompts a run measured is a hash of their text, not a name."""

import json
from pathlib import Path

from orchestrator.environment import inputs
from orchestrator.identity import differences
from orchestrator.plan import Plan, make_plan
from orchestrator.prompts import load_prompts
from orchestrator.spec import SweepSpec
from tests.orchestrator.sweeps import fake_sweep
from tests.orchestrator.test_plan import DEPLOYMENT


def planned(folder: Path, texts: list[str]) -> Plan:
    path = folder / "mbpp.jsonl"
    rows = [{"id": f"p{i}", "task": "code", "prompt": t} for i, t in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    workload = {"prompts": {"set": "file", "path": str(path), "count": 8, "seed": 3}, "max_tokens": 12}
    spec = SweepSpec.model_validate(fake_sweep(workload=workload))
    return make_plan(spec, "local", {"fake": DEPLOYMENT}, load_prompts(spec.workload.prompts))


def test_a_variant_of_the_same_name_is_another_measurement(tmp_path: Path) -> None:
    texts = [f"Write a function that returns {i}." for i in range(10)]
    full = planned(tmp_path, texts)
    sanitized = planned(tmp_path, [text.replace("Write", "Please write") for text in texts])
    again = planned(tmp_path, texts)
    assert full.digest == again.digest != sanitized.digest
    assert not {t.digest for t in full.trials} & {t.digest for t in sanitized.trials}
    refused = {
        item.what for item in differences({"inputs": inputs(full)}, {"inputs": inputs(sanitized)}) if item.refused
    }
    assert refused == {"inputs.prompts.digest", "inputs.prompts.version"}


def test_a_longer_source_is_told_even_where_the_same_prompts_were_drawn(tmp_path: Path) -> None:
    texts = [f"Write a function that returns {i}." for i in range(8)]
    short, long = planned(tmp_path, texts), planned(tmp_path, [*texts, "Another one."])
    assert short.prompt_set.version != long.prompt_set.version
