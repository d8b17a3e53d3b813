"""Another chat template is another workload (z-lab/dflash#133: 25 % became 60 %): it is in the identity."""

import json
from pathlib import Path

from orchestrator.environment import chat_template_digest, inputs
from orchestrator.equivalence import compare_texts, judge
from orchestrator.identity import differences
from tests.orchestrator.sample import frame, request
from tests.orchestrator.test_decision import plan
from tests.orchestrator.test_selection import CHAIN, PLAIN


def model(folder: Path, template: object) -> Path:
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


def test_the_template_has_a_digest(tmp_path: Path) -> None:
    plain, thinking = model(tmp_path / "a", "{{ messages }}"), model(tmp_path / "b", "<think>{{ messages }}")
    same = model(tmp_path / "c", "{{ messages }}")
    assert chat_template_digest(plain) == chat_template_digest(same) != chat_template_digest(thinking)
    (plain / "chat_template.jinja").write_text("<think>")
    assert chat_template_digest(plain) not in (chat_template_digest(same), None)
    assert chat_template_digest(tmp_path / "absent") is None


def test_runs_with_two_templates_are_not_compared() -> None:
    described = {"inputs": inputs(plan())}
    assert "chat_template" in described["inputs"]
    before, after = ({"inputs": {"chat_template": {"fake": digest}}} for digest in ("a", "b"))
    assert [item.refused for item in differences(before, after)] == [True]


def test_an_arm_whose_prompts_came_out_otherwise_passes_no_gate() -> None:
    rows = frame(request(arm=PLAIN.name), request(arm=CHAIN.name, prompt_token_ids=[7, 8, 9]))
    ((result,), _) = judge(compare_texts(rows, (PLAIN, CHAIN), PLAIN.name), {}, 0.0)
    assert not result.passed
    assert "from another prompt" in result.reason
