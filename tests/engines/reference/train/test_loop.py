import pytest
import torch

from engines.reference.train.features import Batch
from engines.reference.train.loop import Schedule, draw_anchors, label_rows, rate


def test_anchors_are_response_tokens_that_have_a_successor():
    generator = torch.Generator().manual_seed(0)
    starts, ends = torch.tensor([3, 10, 5]), torch.tensor([40, 12, 9])
    for _ in range(50):
        anchors, share = draw_anchors(starts, ends, 6, generator)
        assert (anchors >= starts[:, None]).all()
        assert (anchors <= ends[:, None] - 2).all()
    torch.testing.assert_close(share, torch.tensor([1.0, 1 / 6, 3 / 6]))


def test_every_anchor_of_a_response_is_drawn_alike():
    generator = torch.Generator().manual_seed(0)
    anchors, _ = draw_anchors(torch.full((4000,), 2), torch.full((4000,), 13), 4, generator)
    counts = torch.bincount(anchors.flatten(), minlength=13)[2:12]
    assert (counts.float() - 1600).abs().max() < 200


def test_labels_follow_the_seed_and_weigh_nothing_past_the_end():
    tokens = torch.arange(100, 110)[None]
    final = torch.arange(10.0)[None, :, None]
    batch = Batch(tokens, torch.empty(1, 10, 0), final, torch.tensor([2]), torch.tensor([8]))
    weights = torch.tensor([1.0, 0.5, 0.25])
    rows = label_rows(torch.zeros(6, 1), batch, torch.tensor([[2, 6]]), torch.tensor([0.5]), weights, soft=True)
    assert rows.labels[:4].tolist() == [103, 104, 105, 107]
    assert rows.weights.tolist() == [0.5, 0.25, 0.125, 0.5, 0.0, 0.0]
    # The target's state that predicts a label stands one position before it.
    assert rows.teacher is not None
    assert rows.teacher.flatten()[:4].tolist() == [2.0, 3.0, 4.0, 6.0]


def test_the_rate_rises_and_falls_to_zero():
    values = [rate(step / 1000) for step in range(1001)]
    peak = values.index(max(values))
    assert 0 < values[0] < 0.1
    assert peak == pytest.approx(20, abs=1)
    assert max(values) == pytest.approx(1.0, abs=1e-3)
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert values[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_schedule_by_steps_does_not_depend_on_the_clock_but_ends_with_it():
    assert Schedule(deadline=1e12, steps=10).progress(5, began=0.0) == 0.5
    assert not Schedule(deadline=1e12, steps=10).over(9)
    assert Schedule(deadline=1e12, steps=10).over(10)
    assert Schedule(deadline=0.0, steps=10).over(1)
