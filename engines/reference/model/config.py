"""What a checkpoint's config.json says, for the dense Llama, Qwen2 and Qwen3 families and for DFlash drafters."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
DRAFTER_ARCHITECTURE = "DFlashDraftModel"


class CheckpointError(ValueError):
    """A checkpoint folder that cannot be loaded; the message is one line and names what is wrong."""


@dataclass(frozen=True)
class Llama3Scaling:
    """The frequency scaling of Llama 3.1 ("llama3" in Hugging Face's rope types)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class RopeConfig:
    theta: float
    scaling: Llama3Scaling | None = None


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a stack of decoder layers. windows[i] = sliding window of layer i in tokens, None = full attention."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    tied_head: bool
    eos_token_ids: tuple[int, ...]

    @property
    def group_size(self) -> int:
        """Query heads per key/value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True)
class DrafterConfig:
    model: ModelConfig
    block_size: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int


def read_target_config(folder: Path) -> ModelConfig:
    raw = _read_json(folder / "config.json")
    architecture = _architecture(raw, folder)
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"{folder}: architecture {architecture} is not supported: {', '.join(ARCHITECTURES)} are")
    return _model_config(raw, folder, architecture)


def read_drafter_config(folder: Path) -> DrafterConfig:
    raw = _read_json(folder / "config.json")
    architecture = _architecture(raw, folder)
    if architecture != DRAFTER_ARCHITECTURE:
        raise CheckpointError(f"{folder}: architecture {architecture} is not a drafter: {DRAFTER_ARCHITECTURE} is")
    dflash = _required(raw, "dflash_config", folder)
    return DrafterConfig(
        model=_model_config(raw, folder, architecture),
        block_size=int(_required(raw, "block_size", folder)),
        target_layer_ids=tuple(_required(dflash, "target_layer_ids", folder)),
        mask_token_id=int(_required(dflash, "mask_token_id", folder)),
    )


def _architecture(raw: dict[str, Any], folder: Path) -> str:
    return str(_required(raw, "architectures", folder)[0])


def _model_config(raw: dict[str, Any], folder: Path, architecture: str) -> ModelConfig:
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{folder}: hidden_act {raw['hidden_act']} is not supported: silu is")
    heads = int(_required(raw, "num_attention_heads", folder))
    hidden = int(_required(raw, "hidden_size", folder))
    kv_heads = int(raw.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise CheckpointError(f"{folder}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=int(_required(raw, "intermediate_size", folder)),
        num_layers=int(_required(raw, "num_hidden_layers", folder)),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=int(raw.get("head_dim") or hidden // heads),
        vocab_size=int(_required(raw, "vocab_size", folder)),
        max_positions=int(raw.get("max_position_embeddings", 2048)),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope_config(raw, folder),
        windows=_windows(raw, folder),
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(raw, folder),
    )


def _rope_config(raw: dict[str, Any], folder: Path) -> RopeConfig:
    """Transformers 5 keeps all of it in rope_parameters; before, rope_theta stood beside rope_scaling."""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(parameters.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    partial = float(parameters.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise CheckpointError(f"{folder}: partial_rotary_factor {partial} is not supported: 1.0 is")
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind == "default":
        return RopeConfig(theta)
    if kind != "llama3":
        raise CheckpointError(f"{folder}: rope type {kind} is not supported: default and llama3 are")
    return RopeConfig(
        theta,
        Llama3Scaling(
            factor=float(_required(parameters, "factor", folder)),
            low_freq_factor=float(_required(parameters, "low_freq_factor", folder)),
            high_freq_factor=float(_required(parameters, "high_freq_factor", folder)),
            original_max_position_embeddings=int(_required(parameters, "original_max_position_embeddings", folder)),
        ),
    )


def _windows(raw: dict[str, Any], folder: Path) -> tuple[int | None, ...]:
    """Qwen's rule where layer_types is absent: with use_sliding_window, layers from max_window_layers on slide."""
    layers = int(_required(raw, "num_hidden_layers", folder))
    types = raw.get("layer_types")
    if types is None:
        first = int(raw.get("max_window_layers", 0)) if raw.get("use_sliding_window") else layers
        types = ["full_attention" if layer < first else "sliding_attention" for layer in range(layers)]
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown or len(types) != layers:
        raise CheckpointError(f"{folder}: layer_types must name {layers} times full_attention or sliding_attention")
    if "sliding_attention" not in types:
        return (None,) * layers
    window = int(_required(raw, "sliding_window", folder))
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _eos_token_ids(raw: dict[str, Any], folder: Path) -> tuple[int, ...]:
    """generation_config.json decides where it names one, else config.json."""
    path = folder / "generation_config.json"
    generation = _read_json(path) if path.is_file() else {}
    eos = generation.get("eos_token_id", raw.get("eos_token_id"))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (int(eos),)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return content


def _required(raw: dict[str, Any], key: str, folder: Path) -> Any:
    if raw.get(key) is None:
        raise CheckpointError(f"{folder}: config.json lacks {key}")
    return raw[key]
