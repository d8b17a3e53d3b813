"""A GGUF file turned once into a Hugging Face folder, which loads a hundred times faster."""

import json
import os
import re
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from torch import Tensor

from engines.reference.model.config import ARCHITECTURES, CheckpointError

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DERIVED = ("rope_freqs.weight",)
"""Tensors that follow from the configuration."""


def convert_gguf(gguf_path: Path, out_folder: Path) -> None:
    """Write config.json, bfloat16 model.safetensors, the tokenizer and generation_config.json into `out_folder`.

    Either the whole folder appears or nothing does. Raises CheckpointError where the file is not a model of a supported
    family or the folder is already there.
    """
    if out_folder.exists():
        raise CheckpointError(f"{out_folder}: already exists")
    if not gguf_path.is_file():
        raise CheckpointError(f"{gguf_path}: no such file")
    out_folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out_folder.name}-", dir=out_folder.parent))
    try:
        _write(gguf_path, temporary)
        temporary.chmod(0o755)
        os.rename(temporary, out_folder)  # noqa: PTH104 (Path.rename is the same call)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(gguf_path: Path, folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    source: dict[str, Any] = {"pretrained_model_name_or_path": gguf_path.parent, "gguf_file": gguf_path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        config = AutoConfig.from_pretrained(**source).to_dict()
    except (ValueError, OSError, KeyError, struct.error) as error:
        raise CheckpointError(f"{gguf_path}: not a GGUF model that transformers reads ({error})") from None
    families = {family: architecture for architecture, family in ARCHITECTURES.items()}
    family = config["model_type"]
    if family not in families:
        raise CheckpointError(f"{gguf_path}: model type {family} is not supported: {', '.join(families)} are")
    tensors = _tensors(gguf_path, config)
    eos = tokenizer.eos_token_id
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config |= {
        "architectures": [families[family]],
        "dtype": "bfloat16",
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": eos,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": eos})
    tokenizer.save_pretrained(folder)
    _complete_tokenizer_config(folder, config["max_position_embeddings"])


def _tensors(gguf_path: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    """All weights dequantised, under Hugging Face's names."""
    llama = config["model_type"] == "llama"
    paired = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]} if llama else {}
    tensors = {}
    for stored in GGUFReader(gguf_path).tensors:
        if stored.name in _DERIVED:
            continue
        name = _hugging_face_name(gguf_path, stored.name)
        weight = torch.tensor(dequantize(stored.data, stored.tensor_type))
        heads = paired.get(name.removesuffix(".weight").rpartition(".")[2])
        if heads is not None:
            weight = _halves_from_pairs(weight, heads)
        tensors[name] = weight.to(torch.bfloat16).contiguous()
    return tensors


def _hugging_face_name(gguf_path: Path, name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)", name)
    if match is None or match["part"] not in _TENSORS:
        raise CheckpointError(f"{gguf_path}: tensor {name} has no place in a supported model")
    prefix = "" if match["layer"] is None else f"model.layers.{match['layer']}."
    return f"{prefix}{_TENSORS[match['part']]}.{match['kind']}"


def _halves_from_pairs(weight: Tensor, heads: int) -> Tensor:
    """GGUF keeps Llama's rotary dimensions as neighbouring pairs, Hugging Face as two halves of a head."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _complete_tokenizer_config(folder: Path, context: int) -> None:
    """The chat template where every server looks for it, and the context: without one transformers says 1e30, which
    no JSON integer of SGLang's can hold.
    """
    path, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = json.loads(path.read_text()) | {"model_max_length": context}
    if template.is_file():
        config["chat_template"] = template.read_text()
    _write_json(path, config)


def main(arguments: list[str]) -> int:
    """`python -m engines.reference.model.gguf FILE FOLDER`: 0 when converted, 2 with one line for a bad file."""
    if len(arguments) != 2:
        print("usage: python -m engines.reference.model.gguf FILE FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    try:
        convert_gguf(Path(arguments[0]), Path(arguments[1]))
    except CheckpointError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
