"""A target made usable: its hosts, its supervisor, its router, and where everything lies on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from engines.base import Deployment, Endpoint
from engines.home import home
from engines.registry import get_engine
from orchestrator.promotion.connecting import connected, router_supervisor_of, supervisor_of
from orchestrator.promotion.host import LOOPBACK, Host, Supervisor, Unit
from orchestrator.promotion.journal import Journal, Placed, Replica
from orchestrator.promotion.place import ReplicaPlace
from orchestrator.promotion.release import Release
from orchestrator.promotion.router import Router
from orchestrator.promotion.routes import PIN_HEADER, Group
from orchestrator.promotion.spec import LocalTarget, TargetSpec

GIB = 2**30


@dataclass(frozen=True)
class Site:
    """`hosts` by their names, the first one first; `listen`: the address of each that the router reaches."""

    name: str
    spec: TargetSpec
    root: PurePosixPath
    hosts: Mapping[str, Host]
    listen: Mapping[str, str]
    supervisor: Supervisor
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of folders on the hosts, by host and path; what lies there does not change while a site is open."""

    @property
    def first(self) -> Host:
        """The host with the journal, the lock and the router."""
        return next(iter(self.hosts.values()))

    @property
    def journal(self) -> Journal:
        return Journal(self.first, self.root / "journal.jsonl")

    @property
    def lock(self) -> PurePosixPath:
        return self.root / "lock"

    @property
    def router(self) -> Router:
        keeper, name = router_supervisor_of(self.spec), f"orchestrate-{self.name}-router"
        return Router(self.first, self.spec.router, self.root / "router", keeper, name)

    def release_folder(self, release: str) -> PurePosixPath:
        return self.root / "releases" / release

    def local_name(self, release: str) -> Path:
        """Stands for the folder of a release that is only on the target."""
        return Path(f"{self.name}-{release}")

    def model_folder(self, digest: str) -> PurePosixPath:
        return self.root / "models" / digest[:16]

    def group(self, placed: Placed) -> Group:
        """A release as the router knows it."""
        servers = tuple(f"{self.listen[replica.host]}:{replica.port}" for replica in placed.replicas)
        return Group(placed.release, servers)

    def unit(self, release: Release, replica: Replica) -> Unit:
        """One replica of a release as its supervisor knows it."""
        engine, arm = get_engine(release.record.arm.engine), release.record.arm
        deployed, name = self.deployment(release), f"orchestrate-{self.name}-{release.id}-{replica.host}-{replica.port}"
        memory = self.spec.memory_gib
        return Unit(
            name=name,
            argv=tuple(engine.serve(arm, deployed, self.listen[replica.host], replica.port)),
            env={"OMP_NUM_THREADS": str(deployed.threads), "PYTHONUNBUFFERED": "1"}
            | dict(deployed.environment)
            | dict(engine.env(arm, deployed)),
            cwd=self.release_folder(release.id),
            folder=self.root / "units" / name,
            release=self.release_folder(release.id),
            models=tuple(self.model_folder(digest) for digest in release.models),
            port=replica.port,
            gpus=replica.gpus,
            image=self.spec.image,
            memory_bytes=int(memory * GIB) if memory else None,
        )

    def deployment(self, release: Release) -> Deployment:
        """The measured deployment with the places, and the variables, of this target."""
        measured = release.record.deployment
        drafts = measured.drafter_digest if measured.drafter_digest in release.models else None
        interpreter = self.spec.interpreter or ("python3" if self.spec.image else measured.interpreter)
        return replace(
            measured,
            interpreter=interpreter,
            target=str(self.model_folder(measured.target_digest)),
            drafter=str(self.model_folder(drafts)) if drafts else None,
            drafter_digest=drafts,
            environment=dict(measured.environment) | self.spec.environment,
        )

    @contextmanager
    def endpoint(self, release: Release, replica: Replica) -> Iterator[Endpoint]:
        """One replica, reachable from here."""
        host = self.hosts[replica.host]
        place = ReplicaPlace(host, self.supervisor, self.unit(release, replica), self.digests)
        with host.forward(replica.port, self.listen[replica.host]) as port:
            yield replace(get_engine(release.record.arm.engine).endpoint(port), place=place)

    @contextmanager
    def front(self, release: Release) -> Iterator[Endpoint]:
        """The router, reachable from here, as an endpoint of the release alone, whatever the sessions' shares are."""
        spec = self.spec.router
        with self.first.forward(spec.port, spec.address) as port:
            engine = get_engine(release.record.arm.engine)
            url, pin = f"http://127.0.0.1:{port}", {PIN_HEADER: release.id}
            yield replace(engine.endpoint(port), base_url=url, headers=pin)


@contextmanager
def open_site(name: str, spec: TargetSpec) -> Iterator[Site]:
    """Connect to a target. HostError for a host that cannot be reached or is not the known one."""
    supervisor = supervisor_of(spec)
    with connected(spec) as hosts:
        if isinstance(spec, LocalTarget):
            root = spec.root or str(home() / "targets" / name)
            listen = dict.fromkeys(hosts, LOOPBACK)
        else:
            root, listen = spec.root, {host.name: host.listen for host in spec.hosts}
        yield Site(name, spec, PurePosixPath(root), hosts, listen, supervisor)
