"""A run's folder: written once, read by everything else."""

from orchestrator.store.files import read_record, write_text, writing
from orchestrator.store.lines import is_json
from orchestrator.store.run import RunStore, find_run
from orchestrator.store.trials import Trials

__all__ = ["RunStore", "Trials", "find_run", "is_json", "read_record", "write_text", "writing"]
