"""`orchestrate compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import RUNS, Json, Runs

if TYPE_CHECKING:
    from rich.table import Table

    from orchestrator.compare import RunComparison

REGRESSED, UNCLEAR = 8, 3

Before = Annotated[str, typer.Argument(help="The run before the change, or the beginning of its name.", metavar="A")]
After = Annotated[str, typer.Argument(help="The run after it.", metavar="B")]


def compare(
    before: Before,
    after: After,
    margin: Annotated[float, typer.Option(min=0, max=1, help="How much slower is no regression yet.")] = 0.02,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Say whether run B is slower than run A. Exit code 0: no; 8: it regressed; 3: it cannot be told."""
    from rich.console import Console
    from rich.text import Text

    from orchestrator.compare import Change, compare_runs
    from orchestrator.store import find_run

    found = compare_runs(find_run(runs, before), find_run(runs, after), margin)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        console = Console()
        console.print(Text(found.sentence, style="bold"), soft_wrap=True)
        console.print(_table(found))
        for item in found.differences:
            console.print(Text(f"differs: {item.what}: {item.before} -> {item.after}"), soft_wrap=True)
        if found.unmatched:
            console.print(Text(f"only in one of them: {', '.join(found.unmatched)}"), soft_wrap=True)
    codes = {Change.REGRESSED: REGRESSED, Change.UNCLEAR: UNCLEAR}
    raise typer.Exit(codes.get(found.change, 0))


def _table(found: RunComparison) -> Table:
    from rich import box
    from rich.table import Table

    caption = f"{found.confidence:.0%} intervals of after / before; above 1 is faster"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption)
    table.add_column("arm", no_wrap=True)
    for title in ("at\nonce", "speed", "against the\nbaseline", "acceptance\nlength"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in found.deltas:
        relative = row.relative
        table.add_row(
            row.arm,
            str(row.concurrency),
            f"{row.speed.estimate:.3f} ({row.speed.low:.3f}-{row.speed.high:.3f})",
            f"{relative.estimate:.3f} ({relative.low:.3f}-{relative.high:.3f})" if relative else "",
            f"{row.acceptance_before:.2f} > {row.acceptance_after:.2f}",
            row.change.value,
        )
    return table
