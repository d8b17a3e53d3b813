"""Models and data files from the Hugging Face hub, through its own client and its own cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from orchestrator.models.errors import ModelError

MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


class HubError(ModelError):
    """The hub, or its client, did not give what was asked for. One line that says what to do."""


def cached_model(repository: str, revision: str | None) -> Path | None:
    """The snapshot in the client's cache, nothing downloaded; None when there is none."""
    client = _client(repository)
    try:
        return Path(
            client.snapshot_download(repository, revision=revision, allow_patterns=MODEL_FILES, local_files_only=True)
        )
    except client.errors.LocalEntryNotFoundError:
        return None


def download_model(repository: str, revision: str | None) -> Path:
    """Configuration, tokenizer and safetensors weights; other weight formats and code are left out."""
    client = _client(repository)
    return _ask(
        repository,
        lambda: client.snapshot_download(repository, revision=revision, allow_patterns=MODEL_FILES),
    )


def dataset_file(repository: str, name: str) -> Path:
    """One file of a data set, downloaded unless the cache has it."""
    client = _client(repository)
    return _ask(repository, lambda: client.hf_hub_download(repository, name, repo_type="dataset"))


def _client(repository: str) -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise HubError(f"{repository} is on the Hugging Face hub: pip install huggingface-hub") from error
    return huggingface_hub


def _ask(repository: str, request: Callable[[], str]) -> Path:
    from huggingface_hub import errors

    try:
        return Path(request())
    except errors.GatedRepoError as error:
        raise HubError(f"{repository} is gated: accept its terms on the hub and run `hf auth login`") from error
    except errors.LocalEntryNotFoundError as error:
        raise HubError(
            f"{repository}: offline: the Hugging Face hub was not reached and the cache has no copy"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(f"{repository}: the hub has no such repository (a private one needs `hf auth login`)") from error
    except errors.RevisionNotFoundError as error:
        raise HubError(f"{repository}: the hub has no such revision") from error
    except errors.EntryNotFoundError as error:
        raise HubError(f"{repository}: the hub has no such file there") from error
    except (errors.HfHubHTTPError, OSError, ValueError) as error:
        raise HubError(f"{repository}: the hub's client failed: {str(error).strip().splitlines()[0]}") from error
