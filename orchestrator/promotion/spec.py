"""deploy.yaml: where releases may go, and how carefully."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from orchestrator.errors import InputError
from orchestrator.promotion.host import LOOPBACK
from orchestrator.source import Source
from orchestrator.spec import Spec

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(ge=0, le=7 * 86400)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]


def _absolute(value: str) -> str:
    if not PurePosixPath(value).is_absolute() or not all(c.isalnum() or c in "/._-" for c in value):
        raise ValueError("must be an absolute path of letters, digits and / . _ -")
    return value


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class RouterSpec(Spec):
    """nginx in front of the replicas, on the target's first host.

    `own`: a whole instance under the target's folder, no root needed. `include`: the host's nginx, in which one file,
    `include_path`, is ours.
    """

    mode: Literal["own", "include"] = "own"
    listen: Annotated[str, Field(pattern=r"^(\d{1,3}(\.\d{1,3}){3}):\d{1,5}$")] = "127.0.0.1:8080"
    program: AbsolutePath = "/usr/sbin/nginx"
    include_path: AbsolutePath | None = None
    session_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")] = "X-Session-Id"

    @model_validator(mode="after")
    def _include_has_a_path(self) -> RouterSpec:
        if (self.mode == "include") != (self.include_path is not None):
            raise ValueError("`include_path` is required for mode include and not allowed for any other")
        return self

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def address(self) -> str:
        """Where the router answers requests of its own host."""
        address = self.listen.rpartition(":")[0]
        return LOOPBACK if address == "0.0.0.0" else address  # noqa: S104 - compared, not bound


class StageSpec(Spec):
    """One stage of the canary: `share` per cent of the sessions for at least `for_s` seconds."""

    share: Annotated[float, Field(gt=0, lt=100)]
    for_s: Seconds


class WatchSpec(Spec):
    """When the new release is worse than the old one: beyond `margin`, with `confidence`.

    `max_error_share`: requests that may fail before errors are compared at all.
    """

    margin: Annotated[float, Field(ge=0, lt=1)] = 0.1
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    max_error_share: Annotated[float, Field(ge=0, lt=1)] = 0.01


class SmokeSpec(Spec):
    """`tpot_tolerance`: how far TPOT may lie above the run's interval, as a share of it."""

    tpot_tolerance: Annotated[float, Field(ge=0, le=10)] = 0.1


class TargetBase(Spec):
    """What targets of every kind have."""

    supervisor: Literal["process", "systemd", "compose"] = "process"
    interpreter: AbsolutePath | None = None
    image: Annotated[str, Field(pattern=r"^[\w./:-]+@sha256:[0-9a-f]{64}$")] | None = None
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(default_factory=dict)
    replicas: PositiveInt = 1
    ports: tuple[Port, Port] = (18100, 18199)
    memory_gib: Annotated[float, Field(gt=0)] | None = None
    allow_local_profile: bool = False
    router: RouterSpec = RouterSpec()
    smoke: SmokeSpec = SmokeSpec()
    canary: tuple[StageSpec, ...] = (StageSpec(share=5, for_s=60), StageSpec(share=25, for_s=60))
    watch: WatchSpec = WatchSpec()
    ready_s: Annotated[float, Field(gt=0)] | None = None
    warm_for_s: Seconds = 3600
    drain_s: Seconds = 300

    @field_validator("ports")
    @classmethod
    def _in_order(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] > value[1]:
            raise ValueError("the first port must not be above the last")
        return value

    @field_validator("canary")
    @classmethod
    def _growing(cls, value: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
        shares = [stage.share for stage in value]
        if shares != sorted(set(shares)):
            raise ValueError("shares must grow from stage to stage")
        return value

    @model_validator(mode="after")
    def _images_go_with_compose(self) -> Any:
        if (self.supervisor == "compose") != (self.image is not None):
            raise ValueError("`image: NAME@sha256:...` is required for supervisor compose and not allowed for others")
        return self


class LocalTarget(TargetBase):
    """This machine. `root` defaults to a folder under ORCHESTRATE_HOME; nothing needs root."""

    kind: Literal["local"]
    root: AbsolutePath | None = None


class HostSpec(Spec):
    """One machine behind SSH. `listen`: its address that the router reaches replicas at."""

    name: Name
    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$")]
    user: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")] | None = None
    port: Port = 22
    key: str | None = None
    listen: Address = LOOPBACK


class SshTarget(TargetBase):
    """One or more machines behind SSH; the first one holds the router, the journal and the lock."""

    kind: Literal["ssh"]
    root: AbsolutePath
    hosts: Annotated[list[HostSpec], Field(min_length=1)]
    known_hosts: str | None = None

    @model_validator(mode="after")
    def _hosts_differ_and_are_reachable(self) -> SshTarget:
        names = [host.name for host in self.hosts]
        if len(set(names)) != len(names):
            raise ValueError("two hosts have the same name")
        if self.interpreter is None and self.image is None:
            raise ValueError("`interpreter` (the engine's Python on the hosts) or `image` is required")
        return self


TargetSpec = LocalTarget | SshTarget


class DeploySpec(Spec):
    targets: Annotated[
        dict[Name, Annotated[TargetSpec, Field(discriminator="kind")]],
        Field(min_length=1),
    ]


def load_deploy(path: Path) -> DeploySpec:
    """Read deploy.yaml. InputError names file and line."""
    return Source(path).parse(DeploySpec)


def load_target(path: Path, name: str) -> TargetSpec:
    """One target of the file. InputError for a name that it does not have."""
    targets = load_deploy(path).targets
    if name not in targets:
        raise InputError(f"{path}: there is no target {name!r}; it has {', '.join(targets)}")
    return targets[name]
