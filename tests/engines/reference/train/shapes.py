"""A drafter small enough for a test."""

from engines.reference.train.drafter import DrafterConfig

CONFIG = DrafterConfig(
    hidden_size=24,
    intermediate_size=40,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=4,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    max_positions=64,
    vocab_size=50,
    block_size=5,
    num_target_layers=6,
    target_layer_ids=(0, 2, 4),
    mask_token_id=3,
)
