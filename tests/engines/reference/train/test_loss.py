import pytest
import torch
import torch.nn.functional as F

from engines.reference.train import loss as module
from engines.reference.train.loss import Rows, block_loss, position_weights


@pytest.fixture
def rows():
    torch.manual_seed(0)
    weights = torch.rand(11)
    weights[3] = 0.0
    states = torch.randn(11, 6, requires_grad=True)
    return Rows(states, torch.randint(0, 20, (11,)), weights, torch.randn(11, 6))


@pytest.mark.parametrize("hard", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("chunk", [4, 100])
def test_loss_and_gradient_are_those_of_cross_entropy_on_all_logits(rows, hard, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    head = torch.randn(20, 6)
    found = block_loss(rows, head, hard, compiled=False)
    (3 * found).backward()
    reference = rows.states.detach().clone().requires_grad_()
    labels = hard * F.one_hot(rows.labels, 20) + (1 - hard) * (rows.teacher @ head.T).softmax(-1)
    each = F.cross_entropy(reference @ head.T, labels, reduction="none")
    wanted = (each * rows.weights).sum() / rows.weights.sum()
    (3 * wanted).backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(rows.states.grad, reference.grad)


def test_rows_of_weight_zero_have_no_gradient(rows):
    block_loss(rows, torch.randn(20, 6), 1.0, compiled=False).backward()
    assert rows.states.grad[3].abs().max() == 0
    assert rows.states.grad[2].abs().max() > 0


def test_soft_labels_without_a_teacher_are_refused():
    rows = Rows(torch.randn(2, 6), torch.zeros(2, dtype=torch.long), torch.ones(2), None)
    with pytest.raises(ValueError, match="final states"):
        block_loss(rows, torch.randn(20, 6), 0.5, compiled=False)


def test_position_weights_fall_by_a_factor_e_every_gamma_positions():
    weights = position_weights(8, 3.0, torch.device("cpu"))
    assert len(weights) == 7
    assert weights[0] == 1
    torch.testing.assert_close(weights[3] / weights[0], torch.tensor(1.0).exp() ** -1)
