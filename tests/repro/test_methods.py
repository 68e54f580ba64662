"""Method names mean the losses that they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from directloss_repro.ablations import Ablation
from directloss_repro.methods import FAMILIES, PAPER_METHODS, parse_method, parse_methods
from torch import Tensor

import directloss as dl
from directloss import Anchoring, uniloss

TARGET = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1])


def gradient(loss: object, scores: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    loss(leaf).backward()  # type: ignore[operator]
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("pos-ap", lambda s: dl.direct_loss(s, TARGET, "ap", epsilon=0.5, noise=0, sign=+1)),
        ("neg-ap", lambda s: dl.direct_loss(s, TARGET, "ap", epsilon=0.5, noise=0, sign=-1)),
        ("both-f1", lambda s: dl.direct_loss(s, TARGET, "f1", epsilon=0.5, noise=0, sign="both")),
        ("pos-01", lambda s: dl.direct_loss(s, TARGET, "error", epsilon=0.5, noise=0, sign=+1)),
        ("neg-01", lambda s: dl.direct_loss(s, TARGET, "error", epsilon=0.5, noise=0, sign=-1)),
        ("hinge-ap", lambda s: dl.hinge_loss(s, TARGET, "ap", epsilon=0.5)),
        ("hinge-01", lambda s: dl.hinge_loss(s, TARGET, "error", epsilon=0.5)),
        ("per-ap", lambda s: dl.perceptron_loss(s, TARGET, "ap")),
        ("per-01", lambda s: dl.perceptron_loss(s, TARGET, "error")),
        ("pos-ndcg@3", lambda s: dl.direct_loss(s, TARGET, "ndcg@3", epsilon=0.5, noise=0, sign=+1)),
        ("neg-f1", lambda s: dl.direct_loss(s, TARGET, "f1", epsilon=0.5, noise=0, sign=-1)),
        ("hinge-auc", lambda s: dl.hinge_loss(s, TARGET, "auc", epsilon=0.5)),
    ],
)
def test_methods_are_the_losses_of_the_library(name: str, loss: object, generator: torch.Generator) -> None:
    scores = torch.randn(8, generator=generator) * 0.5
    method = parse_method(name)
    ours = gradient(lambda s: method.loss_fn({"epsilon": 0.5})(s, TARGET), scores)
    torch.testing.assert_close(ours, gradient(loss, scores), rtol=0, atol=0)


def test_cross_entropy_by_its_definition(generator: torch.Generator) -> None:
    scores = torch.randn(8, generator=generator, dtype=torch.float64)
    chance = torch.sigmoid(scores)
    expected = -(TARGET * chance.log() + (1 - TARGET) * (1 - chance).log()).mean()
    torch.testing.assert_close(parse_method("x-ent").loss_fn({})(scores, TARGET), expected)


def test_cross_entropy_of_classes(generator: torch.Generator) -> None:
    scores, target = torch.randn(6, 4, generator=generator), torch.randint(4, (6,), generator=generator)
    expected = -scores.log_softmax(1)[torch.arange(6), target].mean()
    torch.testing.assert_close(parse_method("x-ent").loss_fn({})(scores, target), expected)


def test_squared_error_of_heatmaps(generator: torch.Generator) -> None:
    """Mean over pixels, then over the keypoints that are known."""
    heatmaps = torch.randn(2, 2, 5, 6, generator=generator)
    target = torch.tensor([[[2.0, 1.0, 1.0], [3.0, 3.0, 0.0]], [[4.0, 2.2, 1.0], [0.0, 4.0, 1.0]]])
    total = 0.0
    for (b, j), (x, y) in {(0, 0): (2, 1), (1, 0): (4, 2), (1, 1): (0, 4)}.items():
        for row in range(5):
            for column in range(6):
                squared = (row - y) ** 2 + (column - x) ** 2
                near = max(abs(row - y), abs(column - x)) <= 1.5
                total += (float(heatmaps[b, j, row, column]) - near * math.exp(-squared / 0.5)) ** 2 / 30
    assert float(parse_method("mse-0.5").loss_fn({})(heatmaps, target)) == pytest.approx(total / 3, abs=1e-5)
    nothing = torch.zeros(2, 2, 3)
    assert float(parse_method("mse-1").loss_fn({})(heatmaps, nothing)) == 0.0


@pytest.mark.parametrize(
    ("name", "shape", "target"),
    [
        ("uniloss-ap", (8,), TARGET),
        ("uniloss-accuracy", (8, 3), TARGET),
        ("uniloss-pckh", (1, 2, 5, 5), torch.tensor([[[2.0, 2.0, 1.0], [0.0, 0.0, 0.0]]])),
    ],
)
def test_uniloss_takes_what_the_lab_has(
    name: str, shape: tuple[int, ...], target: Tensor, generator: torch.Generator
) -> None:
    method = parse_method(name)
    scores = torch.randn(shape, generator=generator)
    assert method.family == "uniloss"
    losses = [method.loss_fn({}, anchors=4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, same, other = (gradient(lambda s, f=f: f(s, target), scores) for f in losses)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    if name == "uniloss-pckh":
        assert bool((first[0, 1] == 0).all())  # nothing is learned from a keypoint that is not known


OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    ":anchors=5": {"anchors": Anchoring(5, 5, 5)},
    ":spline": {"interpolation": "distance-spline"},
    ":bits": {"anchors": Ablation(bits="accuracy")},
    ":nearest": {"anchors": Ablation(nearest=True)},
    ":control": {"anchors": Ablation(control=True)},
    ":automatic": {},
    ":batch=7": {},
    ":anchors=3:spline:bits": {"anchors": Ablation(3, 3, 3, bits="accuracy"), "interpolation": "distance-spline"},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_are_those_of_uniloss(options: str, generator: torch.Generator) -> None:
    scores = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    ours = parse_method(f"uniloss-accuracy{options}").loss_fn({}, generator=torch.Generator().manual_seed(5))
    draw = torch.Generator().manual_seed(5)
    expected = gradient(
        lambda s: uniloss(
            s,
            TARGET,
            "accuracy",
            likelihood=0,
            generator=draw,
            **{"interpolation": "inverse-distance", **OPTIONS[options]},
        ),
        scores,
    )
    torch.testing.assert_close(gradient(lambda s: ours(s, TARGET), scores), expected)


def test_options_leave_the_rest_to_the_experiment(generator: torch.Generator) -> None:
    scores = torch.randn(8, generator=generator)
    given = parse_method("uniloss-ap:control").loss_fn({}, anchors=3, generator=torch.Generator().manual_seed(5))
    draw, anchors = torch.Generator().manual_seed(5), Ablation(3, 3, 3, control=True)
    expected = gradient(
        lambda s: uniloss(
            s, TARGET, "ap", likelihood=0, interpolation="inverse-distance", generator=draw, anchors=anchors
        ),
        scores,
    )
    torch.testing.assert_close(gradient(lambda s: given(s, TARGET), scores), expected)
    assert parse_method("uniloss-pckh:control")._anchoring(4).unit == "score"
    assert parse_method("x-ent:batch=32").option("batch", 128) == 32
    assert parse_method("x-ent").option("batch", 128) == 128
    assert parse_method("pos-ap:batch=8").family == "direct"


def test_options_are_named_in_one_order() -> None:
    names = parse_methods("uniloss-ap:spline:batch=16:anchors=5, x-ent")
    assert names == ("uniloss-ap:anchors=5:batch=16:spline", "x-ent")


def test_epsilon_defaults() -> None:
    scores = torch.linspace(1, -1, 8)
    for name, epsilon in (("pos-ap", "auto"), ("hinge-ap", 1.0)):
        method = parse_method(name)
        with_default = gradient(lambda s, m=method: m.loss_fn({})(s, TARGET), scores)
        given = gradient(lambda s, m=method, e=epsilon: m.loss_fn({"epsilon": e})(s, TARGET), scores)
        torch.testing.assert_close(with_default, given)


def test_families() -> None:
    with_epsilon = {name for name in PAPER_METHODS if FAMILIES[parse_method(name).family]}
    assert with_epsilon == {"pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01"}
    assert [parse_method(name).family for name in ("neg-01", "hinge-f1", "per-ap", "x-ent")] == [
        "direct",
        "hinge",
        "plain",
        "plain",
    ]


def test_lists_of_methods() -> None:
    assert parse_methods("Pos-AP, x-ent") == ("pos-ap", "x-ent")
    assert parse_methods("all") == PAPER_METHODS
    assert parse_methods("") == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "method must be x-ent, or"),
        ("ap", "method must be x-ent, or"),
        ("pos-", "method must be x-ent, or"),
        ("xent", "Did you mean 'x-ent'"),
        ("hing-ap", "Did you mean 'hinge-ap'"),
        ("pos-app", "task must be a known name"),
        ("pos-ndcg@", "task must have a number after '@'"),
        ("uniloss-apx", "the metric of uniloss- must be one of 'ap', 'accuracy', 'pckh'"),
        ("uniloss-", "method must be x-ent, or"),
        ("mse-wide", "the width of mse- must be a positive number of pixels, but it is 'wide'"),
        ("mse-0", "the width of mse- must be a positive number of pixels"),
        ("mse-inf", "the width of mse- must be a positive number of pixels"),
        ("x-ent:anchors=5", "the option of x-ent must be one of 'batch', but it is 'anchors'"),
        ("uniloss-ap:anchor=5", "Did you mean 'anchors'"),
        ("uniloss-ap:", "the option of uniloss-ap must be one of 'anchors', 'batch', 'spline'"),
        ("uniloss-ap:anchors", "the option anchors must have a whole number of at least 1, as in anchors=8"),
        ("uniloss-ap:anchors=0", "the option anchors must have a whole number of at least 1"),
        ("uniloss-ap:anchors=2.5", "the option anchors must have a whole number of at least 1"),
        ("uniloss-ap:spline=2", "the option spline must have no number, but it is 'spline=2'"),
        ("uniloss-ap:bits:bits", "method must have each option once, but it is 'uniloss-ap:bits:bits'"),
        ("uniloss-pckh:automatic", "automatic must be an option of UniLoss on ap or accuracy"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        parse_method(name)
    assert message in str(caught.value)
