"""A run's decision as a file of benchmarks/results: the numbers behind a sentence, with what they were measured on.

    python -m benchmarks.publish RUN benchmarks/results/NAME.json --command "orchestrate sweep ..."

RUN is the folder of a finished sweep. The host's name is left out. Prints the table for a page, one row an arm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.records import ArmSummary, Comparison, Decision
from orchestrator.store import RunStore


def content(store: RunStore, decision: Decision, command: str) -> dict[str, object]:
    environment = {name: value for name, value in store.environment().items() if name != "host"}
    return {"command": command, "environment": environment, "decision": decision.model_dump(mode="json")}


def table(decision: Decision) -> Iterator[str]:
    """Fastest first, at the concurrency that decided."""
    (point,) = [point for point in decision.points if point.concurrency == decision.concurrency]
    speedups = {comparison.arm: comparison for comparison in point.comparisons}
    rows = [row for row in decision.summaries if row.concurrency == decision.concurrency]
    yield f"| arm | tok/s | against {decision.baseline} (95 % CI) | acceptance length | TPOT p50, ms | TTFT p50, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in sorted(rows, key=lambda row: -row.output_tok_s.estimate):
        yield _row(row, speedups.get(row.arm), decision.arm)


def _row(row: ArmSummary, speedup: Comparison | None, chosen: str | None) -> str:
    name = f"**{row.arm}**" if row.arm == chosen else row.arm
    against = "-"
    if speedup:
        interval = speedup.speedup
        against = f"{interval.estimate:.2f}x ({interval.low:.2f} to {interval.high:.2f})"
    return (
        f"| {name} | {row.output_tok_s.estimate:.1f} | {against} | {row.acceptance_length.estimate:.2f} "
        f"| {row.tpot_ms_p50:.1f} | {row.ttft_ms_p50:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.publish", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--command", required=True)
    options = parser.parse_args()
    store = RunStore(options.run)
    try:
        decision = store.decision()
    except InputError as error:
        parser.error(str(error))
    if decision is None:
        parser.error(f"{options.run}: no decision; the sweep is not finished")
    options.output.write_text(json.dumps(content(store, decision, options.command), indent=1) + "\n", encoding="utf-8")
    print(*table(decision), "", decision.sentence, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
