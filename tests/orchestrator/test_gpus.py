import pytest

from orchestrator.gpus import Monitor, accelerator_name, cards


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA GeForce RTX 5090", "GeForce-RTX-5090"),
    ],
)
def test_names_are_rays_accelerator_types(name: str, accelerator: str) -> None:
    assert accelerator_name(name) == accelerator


def test_a_machine_without_a_gpu_has_no_cards_and_no_readings() -> None:
    if cards():
        pytest.skip("this machine has a GPU")
    monitor = Monitor(["GPU-0"])
    assert monitor.read() is None
    monitor.close()


@pytest.mark.gpu
@pytest.mark.skipif(not cards(), reason="no GPU")
def test_a_card_tells_what_it_is_and_how_it_is() -> None:
    card = cards()[0]
    assert card.uuid.startswith("GPU-")
    assert card.memory_bytes > 1 << 30
    monitor = Monitor([card.uuid])
    reading = monitor.read()
    monitor.close()
    assert reading is not None
    assert 0 < reading.temperature_c < 120
    assert 0 < reading.power_w <= 1.2 * card.power_limit_w
