"""Entry point: exit code 0 when the checkpoint is finished, 2 on bad input, 1 on a training that failed."""

import logging
import sys
from collections.abc import Sequence

from engines.reference.train.arguments import parse
from engines.reference.train.loop import DivergedError
from engines.reference.train.run import Run


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a training; bad input is one line on stderr."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        Run(parse(argv)).train()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except DivergedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
