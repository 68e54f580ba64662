"""The image networks: shapes, numbers of weights, and that every weight learns."""

from __future__ import annotations

import pytest
import torch
from directloss_repro.models import Hourglass, ResNet20, Scorer
from torch import nn


def weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def check_all_learn(model: nn.Module, x: torch.Tensor) -> None:
    model(x).square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert bool(torch.isfinite(weight.grad).all()), name


@pytest.mark.parametrize(("channels", "size", "classes"), [(3, 32, 10), (1, 28, 10), (3, 32, 100)])
def test_resnet_20(channels: int, size: int, classes: int) -> None:
    model = ResNet20(channels, classes)
    assert model(torch.randn(2, channels, size, size)).shape == (2, classes)
    assert weights(model) == pytest.approx(0.27e6, abs=1e4)  # He et al. 2016, Table 6
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(convolutions) == 20
    check_all_learn(ResNet20(channels, classes, 4), torch.randn(4, channels, size, size))


def test_the_way_around_has_no_weights_and_keeps_its_values() -> None:
    block = ResNet20(3, 10, 4).blocks[3]
    for layer in (block.conv1, block.conv2):
        nn.init.zeros_(layer.weight)
    x = torch.rand(2, 4, 8, 8)
    y = block(x)
    assert torch.equal(y[:, :4], x[..., ::2, ::2])
    assert bool((y[:, 4:] == 0).all())


@pytest.mark.parametrize(("size", "depth"), [((64, 64), 4), ((48, 80), 3), ((56, 56), 3)])
def test_hourglass(size: tuple[int, int], depth: int) -> None:
    model = Hourglass(3, 5, width=8, depth=depth)
    assert model(torch.randn(2, 3, *size)).shape == (2, 5, size[0] // 4, size[1] // 4)
    check_all_learn(model, torch.randn(2, 3, *size))


def test_one_stack_has_the_size_of_the_papers() -> None:
    assert weights(Hourglass(3, 16)) == pytest.approx(3.4e6, rel=0.05)


def test_two_outputs_are_the_cross_entropy_of_two_classes(generator: torch.Generator) -> None:
    model = Scorer(6, (5, 4), outputs=2)
    x, y = torch.randn(7, 6, generator=generator), torch.randint(2, (7,), generator=generator)
    both = nn.functional.cross_entropy(model.layers(x), y)
    one = nn.functional.binary_cross_entropy_with_logits(model(x), y.float())
    torch.testing.assert_close(one, both)
    assert weights(Scorer(784, (500, 300), outputs=2)) == 785 * 500 + 501 * 300 + 301 * 2
