"""`python -m ddtree.sglang check [WHEEL_OR_FOLDER]`: does that SGLang, or the installed one, fit? Needs no GPU.

Exit code 0 where it fits, 1 where it does not, 2 for bad input.
"""

import sys
from pathlib import Path

from ddtree.sglang import symbols
from ddtree.sglang.sources import Sources


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] != "check" or len(arguments) > 2:
        return _say("usage: python -m ddtree.sglang check [WHEEL_OR_FOLDER]", 2)
    try:
        sources = Sources(Path(arguments[1])) if arguments[1:] else Sources.installed("sglang")
    except (ImportError, OSError) as error:
        return _say(str(error), 2)
    found = symbols.problems(sources)
    count = len(symbols.SYMBOLS)
    verdict = f"does not fit: {len(found)} of {count} symbols differ" if found else f"fits: {count} symbols checked"
    return _say("\n  ".join([f"this SGLang {verdict}", *found]), 1 if found else 0)


def _say(text: str, code: int) -> int:
    (sys.stderr if code == 2 else sys.stdout).write(text + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
