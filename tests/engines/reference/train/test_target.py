import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engines.reference.train.target import KeyValues, Target, TargetConfig

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
CONFIG = TargetConfig(
    hidden_size=24,
    intermediate_size=40,
    num_layers=4,
    num_heads=6,
    num_kv_heads=2,
    head_dim=4,
    vocab_size=50,
    rms_norm_eps=1e-6,
    rope_theta=10_000.0,
    max_positions=64,
    stop_ids=(2,),
)
FAMILIES = {
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen2, biases": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3, query and key norms": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=4)),
}


def randomised(build):
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_logits_are_those_of_transformers(family):
    model = randomised(FAMILIES[family])
    target = Target(CONFIG, model.state_dict(), torch.device("cpu"), torch.float32)
    tokens = torch.randint(0, 50, (3, 17))
    with torch.no_grad():
        wanted = model(tokens, output_hidden_states=True)
    features, final = target.hidden_states(tokens, (2, 0))
    expected = torch.cat((wanted.hidden_states[3], wanted.hidden_states[1]), dim=-1)
    torch.testing.assert_close(features, expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(target.logits(final), wanted.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_token_by_token_gives_the_states_of_one_pass(family):
    target = Target(CONFIG, randomised(FAMILIES[family]).state_dict(), torch.device("cpu"), torch.float32)
    tokens = torch.randint(0, 50, (3, 17))
    _, final = target.hidden_states(tokens, (0,))
    cache = KeyValues.empty(CONFIG, batch=3, capacity=32, like=target.embedding)
    # What lies past the position must not matter.
    cache.keys.fill_(9.0)
    cache.values.fill_(9.0)
    for place in range(17):
        state = target.decode(tokens[:, place], torch.tensor([place]), cache, length=16 if place < 16 else 32)
        torch.testing.assert_close(state, final[:, place], atol=2e-5, rtol=1e-4)
