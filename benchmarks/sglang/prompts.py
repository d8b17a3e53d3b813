"""`python -m benchmarks.sglang.prompts MODEL_FOLDER OUT`: prompts as token ids, our own set and HumanEval's.

Made where the data sets are installed, for GPU machines that have none: 244 prompts, ours first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

from engines.reference.serving.chat import ChatTemplate
from orchestrator.prompts import load_prompts
from orchestrator.spec import PromptSpec


def main() -> None:
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    template, tokenizer = ChatTemplate.load(model), Tokenizer.from_file(str(model / "tokenizer.json"))
    assert template is not None
    rows = []
    for name in ("orchestrate", "humaneval"):
        for prompt in load_prompts(PromptSpec.model_validate({"set": name})).prompts:
            text = template.render([{"role": role, "content": content} for role, content in prompt.messages], {})
            rows.append(
                {"id": prompt.prompt_id, "set": name, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
            )
    out.write_text(json.dumps(rows), encoding="utf-8")
    print(f"{len(rows)} prompts in {out}")


if __name__ == "__main__":
    main()
