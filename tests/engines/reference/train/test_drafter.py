import pytest
import torch
import torch.nn.functional as F

from engines.reference.train.drafter import Drafter, DrafterConfig, embed_blocks, visible_context
from engines.reference.train.target import rotate
from tests.engines.reference.train.shapes import CONFIG


@pytest.fixture
def drafter():
    torch.manual_seed(0)
    built = Drafter(CONFIG)
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return built


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    embedding = torch.randn(50, 24)
    seeds = torch.randint(0, 50, (2, 3))
    return embed_blocks(embedding, seeds, CONFIG), torch.randn(2, 20, 72), torch.tensor([[4, 5, 19], [1, 7, 12]])


def naive(drafter: Drafter, block: torch.Tensor, features: torch.Tensor, anchor: int) -> torch.Tensor:
    """One block by the definition: keys and values are the context before the seed, then the block; full attention."""
    context = drafter.hidden_norm(drafter.fc(features[:anchor]))
    x, size = block, len(block)
    places = torch.arange(anchor + size)
    for layer in drafter.layers:
        attention, normed = layer.self_attn, layer.input_layernorm(x)
        both = torch.cat((context, normed))
        q = attention.q_norm(attention.q_proj(normed).view(size, 6, 4))
        k = attention.k_norm(attention.k_proj(both).view(anchor + size, 2, 4))
        v = attention.v_proj(both).view(anchor + size, 2, 4)
        cos, sin = drafter.cos[places][:, None], drafter.sin[places][:, None]
        q, k = rotate(q, cos[anchor:], sin[anchor:]), rotate(k, cos, sin)
        heads = [
            (q[:, head] @ k[:, head // 3].T * 4**-0.5).softmax(-1) @ v[:, head // 3] for head in range(CONFIG.num_heads)
        ]
        x = x + attention.o_proj(torch.cat(heads, dim=-1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return drafter.norm(x)


def test_many_blocks_in_one_pass_equal_each_block_alone_by_the_definition(drafter, inputs):
    blocks, features, anchors = inputs
    together = drafter(blocks, features, anchors)
    for row in range(2):
        for column in range(3):
            alone = naive(drafter, blocks[row, column], features[row], int(anchors[row, column]))
            torch.testing.assert_close(together[row, column], alone, atol=1e-5, rtol=1e-4)


def test_a_block_sees_the_context_strictly_before_its_seed():
    visible = visible_context(torch.tensor([[0, 2, 4]]), 4)
    assert visible.tolist() == [[[False] * 4, [True, True, False, False], [True] * 4]]


def test_features_at_and_after_the_seed_change_nothing_and_the_one_before_does(drafter, inputs):
    blocks, features, anchors = inputs
    before = drafter(blocks, features, anchors)
    changed = features.clone()
    changed[0, 5:] += 1.0
    after = drafter(blocks, changed, anchors)
    torch.testing.assert_close(after[0, :2], before[0, :2])
    assert not torch.allclose(after[0, 2], before[0, 2])
    changed[0, 4] += 1.0
    assert not torch.allclose(drafter(blocks, changed, anchors)[0, 1], before[0, 1])


def test_blocks_hold_the_seed_and_then_masks():
    embedding = torch.randn(50, 24)
    blocks = embed_blocks(embedding, torch.tensor([[7]]), CONFIG)
    torch.testing.assert_close(blocks[0, 0], F.embedding(torch.tensor([7, 3, 3, 3, 3]), embedding))


@pytest.mark.parametrize(("layers", "mask"), [((1, 4), 0), ((), 0), ((-1,), 0), ((1,), 259)])
def test_layers_and_mask_tokens_that_the_target_lacks_are_refused(source, layers, mask):
    with pytest.raises(ValueError, match="must be"):
        DrafterConfig.for_target(source.config, layers=1, block_size=4, target_layer_ids=layers, mask_token=mask)
