"""What a run was measured on, with and about: environment.json. Nothing here names a place."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines import packages
from engines.base import Deployment, EngineError
from engines.probing import ask
from orchestrator import hardware
from orchestrator.errors import InputError
from orchestrator.plan import PLACES, PROTOCOL, Plan

PACKAGES = ("orchestrate", "ddtree-kernels", "torch", "triton", "ray", "numpy", "pandas", "aiohttp")


def describe() -> dict[str, Any]:
    """The driver's machine and software. Slots say what they are in their trials' records."""
    return hardware.describe() | {
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "packages_digest": packages_digest(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
    }


def inputs(plan: Plan) -> dict[str, Any]:
    """What a run measures, in digests: prompts, chat template, deployments, seeds, the way of measuring."""
    prompts, spec = plan.prompt_set, plan.spec
    anew = {"blocks": {"restart": True}} if spec.blocks.restart else {}
    return anew | {
        "protocol": PROTOCOL,
        "prompts": {
            "set": prompts.name,
            "version": prompts.version,
            "digest": prompts.digest,
            "count": len(prompts.prompts),
            "seed": prompts.seed,
        },
        "workload": spec.workload.model_dump(mode="json", exclude={"prompts"}),
        "seeds": {"blocks": spec.blocks.seed, "selection": spec.selection.seed, "sampling": spec.workload.seed},
        "engines": {
            name: _engine(asdict(deployment)) | _packages(deployment) for name, deployment in plan.deployments.items()
        },
        "chat_template": {
            name: chat_template_digest(Path(deployment.target)) for name, deployment in plan.deployments.items()
        },
    }


def _engine(deployment: dict[str, Any]) -> dict[str, Any]:
    """Of the environment only the names: a value may be a key to something."""
    told = {name: value for name, value in deployment.items() if name not in PLACES}
    return told | {"environment": sorted(told["environment"])}


def chat_template_digest(folder: Path) -> str | None:
    """sha256 of the template that a model folder brings; None where it brings none. It moves acceptance as much as the
    method does."""
    with contextlib.suppress(OSError):
        return _sha((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        return _sha(json.dumps(config["chat_template"], sort_keys=True))
    return None


def packages_digest() -> str:
    """sha256 over name, version and files of everything installed here."""
    return _sha(json.dumps(packages.installed()))


def _packages(deployment: Deployment) -> dict[str, Any]:
    """Of the interpreter that serves: version and digest of each distribution, and one digest of all. Nothing of an
    image, whose own digest covers them. InputError where it cannot say."""
    if deployment.image:
        return {}
    try:
        told = ask(deployment.interpreter, packages.__file__, "a listing of its packages", "mend its installation")
        found = {name: " ".join(parts) for name, parts in json.loads(told)["packages"].items()}
    except (EngineError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"packages of {deployment.interpreter}: {error}") from error
    return {"packages_digest": _sha(json.dumps(found)), "packages": found}


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """What git says about the product's own folder; None where it is no repository or git is not there."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
