"""Units as the files of their supervisors, from the templates beside this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePosixPath

import jinja2

from orchestrator.promotion.host import LOOPBACK, Unit

_GPU_DEVICES = ("char-nvidia", "char-nvidia-frontend", "char-nvidiactl", "char-nvidia-uvm", "char-nvidia-caps")
"""Their names in /proc/devices, of older and newer drivers."""


def service(unit: Unit, system: bool, environment_file: PurePosixPath) -> str:
    """A service for the system's manager or for a user's."""
    return _template("router.service.j2" if unit.router else "unit.service.j2").render(
        unit=unit, system=system, environment_file=environment_file, gpu_devices=_GPU_DEVICES
    )


def environment_file(variables: Mapping[str, str]) -> str:
    """Variables as systemd's EnvironmentFile= reads them: like text in double quotes of a POSIX shell."""
    return "".join(f"{name}={_shell_text(value)}\n" for name, value in sorted(variables.items()))


def compose(unit: Unit, environment_file: PurePosixPath) -> str:
    """A compose project with the server as its one service."""
    folders = dict.fromkeys((unit.cwd, unit.release, *unit.models))
    health = f"http://{_address(unit)}:{unit.port}/health"
    return _template("compose.yaml.j2").render(
        unit=unit, environment_file=environment_file, folders=folders, health=health
    )


def compose_variables(variables: Mapping[str, str]) -> str:
    """Variables as compose's env_file reads them. ValueError names one that its format cannot hold."""
    for name, value in variables.items():
        if "'" in value or "\n" in value:
            raise ValueError(f"variable {name} has a quote or a line break, which compose cannot pass on")
    return "".join(f"{name}='{value}'\n" for name, value in sorted(variables.items()))


def _address(unit: Unit) -> str:
    """Where the server listens: every engine's command says so by `--host`."""
    words = unit.argv
    return next((value for option, value in reversed([*pairwise(words)]) if option == "--host"), LOOPBACK)


def _template(name: str) -> jinja2.Template:
    rules = jinja2.Environment(  # noqa: S701 - no HTML; every value goes through a filter of its format
        loader=jinja2.PackageLoader("orchestrator.promotion.supervisors"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    rules.filters |= {"quote": _word, "path": _path, "text": _text}
    return rules.get_template(name)


def _word(value: object) -> str:
    """One word of a service file: C's escapes, and no specifiers."""
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return f'"{escaped}"'


def _path(value: object) -> str:
    """A setting of a service file whose value is one path: without quotes."""
    return str(value).replace("%", "%%")


def _text(value: object) -> str:
    """A string of YAML, which JSON's are, for compose, to which a dollar sign is a variable."""
    return json.dumps(str(value)).replace("$", "$$")


def _shell_text(value: str) -> str:
    for character in '\\"$`':
        value = value.replace(character, f"\\{character}")
    return f'"{value}"'
