"""A tiny random chat model in a folder, as the trainer reads one."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engines.reference.train.source import Source, read_source
from engines.reference.train.target import Target

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
SPECIAL = ["<pad>", "<s>", "</s>"]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, after three special tokens; </s> (id 2) ends a turn."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    return fast


def write_target(folder: Path, **changes: object) -> Path:
    torch.manual_seed(0)
    settings = {
        "vocab_size": 259,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    LlamaForCausalLM(LlamaConfig(**settings)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def source(target_folder: Path) -> Source:
    return read_source(target_folder)


@pytest.fixture(scope="session")
def target(source: Source) -> Target:
    return Target(source.config, source.weights, torch.device("cpu"), torch.float32)


@pytest.fixture
def edit_config(target_folder: Path, tmp_path: Path):
    """Writes a config.json that differs from the tiny target's, beside an empty weights file."""

    def edit(**changes: object) -> Path:
        raw = json.loads((target_folder / "config.json").read_text()) | changes
        (tmp_path / "config.json").write_text(json.dumps(raw))
        (tmp_path / "model.safetensors").touch()
        return tmp_path

    return edit
