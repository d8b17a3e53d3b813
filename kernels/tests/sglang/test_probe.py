import torch

from ddtree.sglang.probe import Probe, expected_tokens
from ddtree.sglang.trees import Candidates


def test_expected_tokens_are_the_path_probabilities_of_the_first_nodes() -> None:
    scores = torch.log(torch.tensor([[1.0, 0.5, 0.25, 0.25, 0.0]]))
    assert expected_tokens(scores, torch.tensor([0, 1, 3, 4])).tolist() == [[1.0, 1.5, 2.0, 2.0]]


def test_a_probe_sees_each_width_as_if_it_had_been_built() -> None:
    generator = torch.Generator().manual_seed(5)
    drafts = Candidates.empty(3, 4, 6, "cpu")
    top = torch.log_softmax(torch.randn(3, 4, 40, generator=generator), -1).topk(6)
    drafts.log_probs.copy_(top.values)
    drafts.token_ids.copy_(top.indices)
    probe = Probe(3, 4, [5, 9, 20], "cpu")
    probe.look(drafts)
    for column, width in enumerate([5, 9, 20]):
        alone = Probe(3, 4, [width], "cpu")
        alone.look(drafts)
        torch.testing.assert_close(probe._expected[:, column], alone._expected[:, 0])
    assert (probe._expected.diff(dim=1) >= 0).all()
