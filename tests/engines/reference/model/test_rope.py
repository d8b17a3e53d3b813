import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engines.reference.model.config import Llama3Scaling, RopeConfig
from engines.reference.model.rope import RotaryTable, rotate_

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("scaling", [None, LLAMA3])
def test_rotation_equals_transformers(scaling: dict[str, float] | None) -> None:
    kind = {"rope_type": "default"} if scaling is None else {"rope_type": "llama3", **scaling}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters={"rope_theta": 500.0, **kind}
    )
    positions = torch.tensor([0, 3, 77, 401])
    x = torch.randn(4, 5, 16, generator=torch.Generator().manual_seed(0))
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x[None], x[None], cos, sin, unsqueeze_dim=2)

    rope = RopeConfig(500.0, None if scaling is None else Llama3Scaling(**scaling))  # type: ignore[arg-type]
    table = RotaryTable(rope, 16, 500, torch.float32, torch.device("cpu"))
    rotate_(x, *table.rows(positions))
    torch.testing.assert_close(x, expected[0], rtol=1e-4, atol=1e-4)
