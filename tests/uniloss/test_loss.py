"""The loss: values, gradients by finite differences, batches, masks, types, likelihood, memory, errors."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

import directloss as dl
from benchmarks.interpolation import quality
from directloss import Anchoring, DirectLossError, DirectLossWarning, Refactoring, UniLoss, uniloss
from directloss._uniloss.loss import SHARE
from directloss.relaxation import DistanceSpline, InverseDistance, ideal_scores
from tests.uniloss.conftest import Problem, problem


def _seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _loss_and_gradient(scores: Tensor, target: Tensor, metric: object, **options: object) -> tuple[Tensor, Tensor]:
    free = scores.detach().clone().requires_grad_()
    loss = uniloss(free, target, metric, generator=_seeded(), **options)  # type: ignore[arg-type]
    loss.backward()
    assert free.grad is not None
    return loss.detach(), free.grad


def _ideal(scores: Tensor, target: Tensor) -> Tensor:
    best = ideal_scores(scores, target)
    assert best is not None
    return best


WAYS: list[dict[str, object]] = [
    {"interpolation": "inverse-distance"},
    {"interpolation": "distance-spline"},
    {"fraction": 0.4},
    {"anchors": 5},
    {"anchors": Anchoring(flips=2)},
    {"anchors": Anchoring(unit="score")},
    {"maximize": False, "best_scores": lambda scores, target: -_ideal(scores, target)},
]


@pytest.mark.parametrize("options", WAYS, ids=[f"way{k}" for k in range(len(WAYS))])
def test_gradient_against_finite_differences(named: Problem, options: dict[str, object]) -> None:
    """Anchors are held fixed, as they are within one step: only the relaxed part is differentiated."""
    name, scores, target = named
    loss, gradient = _loss_and_gradient(scores, target, name, value="interpolated", likelihood=0, **options)
    loss_fn = UniLoss(name, **options)  # type: ignore[arg-type]
    bound, draw = loss_fn.refactored.bind(scores, target), _seeded()
    assert bound is not None
    comparisons = bound.comparisons
    if loss_fn.best_scores is not None:
        bound = replace(bound, best_scores=loss_fn.best_scores(scores, target).flatten())
    if "fraction" in options:
        kept = torch.randperm(comparisons.count, generator=draw)[: round(0.4 * comparisons.count)]
        comparisons = comparisons.take(kept)
    drawn = loss_fn.anchoring.draw(bound, comparisons, draw)
    nothing = torch.zeros(comparisons.count, dtype=torch.bool)
    anchors = torch.cat([part for _, part in drawn.differing(nothing)]).T
    between = (anchors[:, None] != anchors).sum(-1).double().numpy()

    def value(flat: Tensor) -> float:
        squared = (torch.sigmoid(comparisons.values(flat)) - anchors).square().sum(-1)
        surface, _ = loss_fn.interpolation(squared.numpy(), drawn.values.numpy(), lambda: between)
        return surface if options.get("maximize") is False else 1 - surface

    assert loss.item() == pytest.approx(value(scores.flatten()))
    step = 1e-6
    for item in range(0, scores.numel(), 7):
        bump = torch.zeros(scores.numel(), dtype=scores.dtype)
        bump[item] = step
        slope = (value(scores.flatten() + bump) - value(scores.flatten() - bump)) / (2 * step)
        assert gradient.flatten()[item].item() == pytest.approx(slope, abs=1e-8)


def test_values_of_anchors_are_plain_calls_of_the_metric(named: Problem) -> None:
    """Good ones are one flip from the best, nearby ones flip something."""
    name, scores, target = named
    loss_fn = UniLoss(name)
    bound = loss_fn.refactored.bind(scores, target)
    assert bound is not None
    anchors = Anchoring(8, 6, 4, unit=loss_fn.anchoring.unit).draw(bound, bound.comparisons, _seeded())
    ones = torch.ones(bound.comparisons.count, dtype=torch.bool)
    wrong = sum(part.sum(0) for _, part in anchors.differing(ones))
    here = bound.comparisons.values(bound.scores) > 0
    flips = sum(part.sum(0) for _, part in anchors.differing(here))
    assert isinstance(wrong, Tensor)
    assert isinstance(flips, Tensor)
    assert wrong[:8].tolist() == [1] * 8
    assert bool((flips[8:14] > 0).all())
    assert anchors.values[:8].min() > max(bound.now, *anchors.values[8:].tolist()) - 1e-9


@pytest.mark.parametrize(("name", "metric"), [("ap", dl.metrics.average_precision), ("accuracy", dl.metrics.accuracy)])
def test_found_and_hand_written_refactorings_agree(name: str, metric: object) -> None:
    scores, target = problem(name, 3)
    torch.testing.assert_close(
        _loss_and_gradient(scores, target, name), _loss_and_gradient(scores, target, metric), rtol=1e-10, atol=1e-12
    )


def test_ties_have_the_value_of_the_metric() -> None:
    """All scores equal, as at the beginning of a zero-initialised head, or on a coarse grid."""
    for steps in (0, 1, 2):
        scores, target = problem("ap", 5)
        loss, slope = _loss_and_gradient((scores * steps).round(), target, "ap")
        assert loss.item() == pytest.approx(1 - dl.metrics.average_precision((scores * steps).round(), target).item())
        assert bool(slope.isfinite().all())
        assert bool(slope.any())


@pytest.mark.parametrize("metric", ["ap", dl.metrics.f_beta])
def test_the_same_input_has_the_same_gradient_first_and_last(metric: object) -> None:
    """In training and evaluation mode, after other input, and in a fresh module."""
    scores, target = problem("ap")
    loss_fn = UniLoss(metric)  # type: ignore[arg-type]
    found = []
    for other in range(3):
        loss_fn.train(other != 1)
        loss_fn.generator = _seeded()
        free = scores.clone().requires_grad_()
        found.append(torch.autograd.grad(loss_fn(free, target), free)[0])
        loss_fn(torch.randn(30, generator=_seeded(other)), (torch.arange(30) % 2).long())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], _loss_and_gradient(scores, target, metric)[1])
    assert not loss_fn.state_dict()


# ------------------------------------------------------------------ likelihood


def _entropy_slope(scores: Tensor, target: Tensor, metric: str) -> Tensor:
    free = scores.clone().requires_grad_()
    entropy = F.cross_entropy(free, target) if metric == "accuracy" else (
        F.binary_cross_entropy_with_logits(free, target.to(free.dtype)))  # fmt: skip
    return torch.autograd.grad(entropy, free)[0]


@pytest.mark.parametrize("metric", ["ap", "accuracy", "f1"])
def test_a_share_of_the_likelihood_is_added_to_the_gradient_alone(metric: str) -> None:
    scores, target = problem("accuracy" if metric == "accuracy" else "ap")
    (pure, without), (value, twice) = (_loss_and_gradient(scores, target, metric, likelihood=share) for share in (0, 2))
    bound = UniLoss(metric).refactored.bind(scores, target)
    assert bound is not None
    values = Anchoring().draw(bound, bound.comparisons, _seeded()).values
    unit = (values.max() - values.min()).item()
    assert value == pure
    torch.testing.assert_close(twice - without, 2 * unit * _entropy_slope(scores, target, metric))
    usual = _loss_and_gradient(scores, target, metric)[1]
    torch.testing.assert_close(usual, _loss_and_gradient(scores, target, metric, likelihood=SHARE)[1])


def test_targets_without_a_likelihood() -> None:
    """Grades, and pixels near a keypoint, of which one is enough."""
    grades = torch.tensor([0, 2, 1, 0, 0, 1, 0, 3])
    scores = torch.randn(8, generator=_seeded(3))
    for metric, given in (("graded_ndcg", (scores, grades)), ("pckh", problem("pckh"))):
        one, other = (_loss_and_gradient(*given, metric, likelihood=share)[1] for share in (0, 5))
        assert torch.equal(one, other)


def test_ignored_classes_have_no_likelihood() -> None:
    def right(scores: Tensor, target: Tensor) -> Tensor:
        return (scores.argmax(-1) == target)[target >= 0].double().mean()

    scores, target = problem("accuracy")
    target[2] = -1
    one, other = (_loss_and_gradient(scores, target, right, likelihood=share)[1] for share in (0, 5))
    assert torch.equal(one[2], other[2])
    assert not torch.equal(one[1], other[1])


def test_a_profit_at_a_threshold_is_learned() -> None:
    """Without a likelihood UniLoss ends 0.13 below cross-entropy here."""

    def profit(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores.sigmoid() > 0.3) * (10 * target - 3)).sum() / (7 * target.sum()).clamp(min=1)

    draw = _seeded(1)
    x = torch.randn(2000, 20, generator=draw)
    chance = torch.sigmoid(x[:, :5].sum(1) * 1.5 - 3)
    y = (torch.rand(2000, generator=draw) < chance).long()
    best = profit(chance.logit()[1500:], y[1500:]).item()

    def trained(loss_fn: object) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        optimizer, order = torch.optim.Adam(model.parameters(), 0.01), _seeded(2)
        for _ in range(100):
            batch = torch.randint(1500, (128,), generator=order)
            optimizer.zero_grad()
            loss_fn(model(x[batch]), y[batch]).backward()  # type: ignore[operator]
            optimizer.step()
        return profit(model(x[1500:]), y[1500:]).item() / best

    entropy = trained(lambda s, t: F.binary_cross_entropy_with_logits(s, t.float()))
    assert trained(UniLoss(profit, generator=_seeded())) > entropy - 0.06


# ------------------------------------------------------------------ batches and types


def test_training_improves_the_metric(named: Problem) -> None:
    name, scores, target = named
    free = scores.clone().requires_grad_()
    optimizer = torch.optim.Adam([free], 0.1)
    loss_fn = UniLoss(name, generator=_seeded())
    first = loss_fn(free, target).item()
    for _ in range(150):
        optimizer.zero_grad()
        loss_fn(free, target).backward()
        optimizer.step()
    assert first > 0.2
    assert loss_fn(free, target).item() == pytest.approx(0.0, abs=1e-6)


def test_value_is_the_interpolated_or_the_true_metric(named: Problem) -> None:
    name, scores, target = named
    (interpolated, one), (metric, other) = (
        _loss_and_gradient(scores, target, name, value=value) for value in ("interpolated", "metric")
    )
    bound = UniLoss(name).refactored.bind(scores, target)
    assert bound is not None
    assert metric.item() == pytest.approx(1 - bound.now)
    assert interpolated.item() != metric.item()
    torch.testing.assert_close(one, other)


def test_same_generator_same_loss_other_generator_other_loss(named: Problem) -> None:
    name, scores, target = named
    values = [uniloss(scores, target, name, generator=_seeded(seed), value="interpolated").item() for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_a_batch_is_its_problems_one_by_one() -> None:
    scores = torch.randn(2, 3, 12, dtype=torch.float64, generator=_seeded(1))
    target = (torch.rand(2, 3, 12, generator=_seeded(2)) < 0.4).long()
    loss_fn = UniLoss("ap", generator=_seeded(), reduction="none")
    batch = loss_fn(scores, target)
    one = UniLoss("ap", generator=_seeded())
    torch.testing.assert_close(batch, torch.stack([one(s, t) for s, t in _rows(scores, target)]).reshape(2, 3))
    for reduction, expected in (("mean", batch.mean()), ("sum", batch.sum())):
        torch.testing.assert_close(uniloss(scores, target, "ap", generator=_seeded(), reduction=reduction), expected)


def _rows(scores: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(scores.reshape(-1, 12), target.reshape(-1, 12), strict=True))


@pytest.mark.parametrize("metric", ["ap", "accuracy", "pckh"])
def test_padding_has_no_influence(metric: str) -> None:
    scores, target = problem(metric)
    mask = torch.rand(target.shape, generator=_seeded(5)) < 0.8
    spoiled_target = torch.where(mask, target, 1)
    wide = mask if mask.shape == scores.shape else mask[..., None]
    results = []
    for filler in (0.0, float("nan"), 99.0):
        loss_fn = UniLoss(metric, generator=_seeded())
        free = torch.where(wide, scores, torch.tensor(filler, dtype=scores.dtype)).requires_grad_()
        loss = loss_fn(free, spoiled_target, mask)
        loss.backward()
        assert free.grad is not None
        assert bool((free.grad[~wide.expand(free.shape)] == 0).all())
        results.append((loss.detach(), free.grad))
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])


@pytest.mark.parametrize("value", ["metric", "interpolated"])
def test_without_pairs_the_loss_is_zero_and_warned_of_once(value: str) -> None:
    scores = torch.randn(3, 5, requires_grad=True)
    target = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    loss_fn = UniLoss("ap", generator=_seeded(), reduction="none", value=value)
    with pytest.warns(DirectLossWarning, match="2 of 3 problems have no loss under AveragePrecisionPairs"):
        loss = loss_fn(scores, target)
    assert loss[1:].tolist() == [0, 0]
    loss_fn.reduction, loss_fn.generator = "mean", _seeded()
    assert loss_fn(scores, target).item() == pytest.approx(loss[0].item())  # and no second warning
    loss.sum().backward()
    assert scores.grad is not None
    assert not bool(scores.grad[1:].any())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(named: Problem, dtype: torch.dtype) -> None:
    name, scores, target = named
    free = scores.to(dtype).requires_grad_()
    loss = uniloss(free, target, name, generator=_seeded())
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert free.grad is not None
    assert free.grad.dtype == dtype
    assert bool(torch.isfinite(free.grad).all())


def test_a_list_with_nothing_to_compare_is_zero_in_half_precision() -> None:
    """Whose sum of scores is no number of that type."""
    scores, target = torch.full((2, 1000), 100.0).half().requires_grad_(), torch.zeros(2, 1000, dtype=torch.long)
    target[0, 0] = 1
    with pytest.warns(DirectLossWarning, match="1 of 2 problems have no loss"):
        loss = uniloss(scores, target, "ap", reduction="none")
    loss.sum().backward()
    assert loss[1] == 0
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert not bool(scores.grad[1].any())


def test_large_scores_saturate_without_nan(named: Problem) -> None:
    name, scores, target = named
    for scale in (1e4, 1e30, 1e-30):
        _, gradient = _loss_and_gradient(scores * scale, target, name)
        assert bool(torch.isfinite(gradient).all())


def test_scaling_the_loss_scales_the_gradient() -> None:
    scores, target = problem("ap")
    free = scores.clone().requires_grad_()
    (uniloss(free, target, "ap", generator=_seeded()) * 1024).backward()
    assert free.grad is not None
    torch.testing.assert_close(free.grad / 1024, _loss_and_gradient(scores, target, "ap")[1])


def test_pickle_deepcopy_and_no_grad() -> None:
    scores, target = problem("ap")
    for loss_fn in (pickle.loads(pickle.dumps(UniLoss("ap"))), copy.deepcopy(UniLoss("ap"))):
        with torch.no_grad():
            loss = loss_fn(scores, target)
        assert not loss.requires_grad


def test_ap_of_ten_thousand_scores() -> None:
    """Nine million pairs with 48 anchors: their binaries alone would take 400 MB."""
    scores = torch.randn(10_000, generator=_seeded(3)).requires_grad_()
    target = (torch.arange(10_000) < 1_000).long()
    uniloss(scores, target, "ap", anchors=4, generator=_seeded()).backward()
    assert scores.grad is not None
    assert scores.grad[:1_000].mean() < 0 < scores.grad[1_000:].mean()


@pytest.mark.parametrize("surface", ["inverse-distance", "distance-spline"])
def test_binaries_of_anchors_are_not_stored(surface: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, with the same result."""
    scores, target = torch.randn(300, generator=_seeded(1)), (torch.arange(300) % 5 == 0).long()
    whole = _loss_and_gradient(scores, target, "ap", interpolation=surface)
    monkeypatch.setattr("directloss._uniloss.comparisons.BLOCK", 48 * 100)
    largest = []
    make = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **more: largest.append(size) or make(*size, **more))
    torch.testing.assert_close(_loss_and_gradient(scores, target, "ap", interpolation=surface), whole)
    assert max(size[0] * size[1] for size in largest if len(size) == 2) == 48 * 100


# ------------------------------------------------------------------ a refactoring of one's own


def _own() -> Refactoring:
    return Refactoring(
        comparisons=lambda scores, target: scores * (2 * target - 1),
        value=lambda binaries, target: binaries.double().mean(),
    )


def test_own_refactoring_learns() -> None:
    free = torch.randn(12, dtype=torch.float64, generator=_seeded(4)).requires_grad_()
    target = torch.arange(12) % 2
    loss_fn = UniLoss(_own(), generator=_seeded())
    optimizer = torch.optim.Adam([free], 0.2)
    for _ in range(100):
        optimizer.zero_grad()
        loss_fn(free, target).backward()
        optimizer.step()
    assert loss_fn(free, target).item() == 0.0


def test_own_refactoring_in_batches_and_with_own_best() -> None:
    scores = torch.randn(3, 8, dtype=torch.float64, generator=_seeded(6))
    target = torch.arange(8).expand(3, 8) % 2
    options = {"batch_dims": 1, "reduction": "none", "generator": _seeded()}
    given = uniloss(scores, target, _own(), best_scores=lambda s, t: (2 * t - 1) * 3.0, **options)  # type: ignore[arg-type]
    assert given.shape == (3,)


# ------------------------------------------------------------------ analysis


@pytest.mark.parametrize("metric", ["ap", "accuracy"])
def test_the_study_of_interpolations_finds_what_it_looks_for(metric: str) -> None:
    """At the anchors an interpolation knows the metric; far from them the spline knows it better."""
    scores = torch.randn(3, 64, 10, dtype=torch.float64, generator=_seeded(8))
    target = scores.argmax(-1)
    target[:, ::3] = (target[:, ::3] + 1) % 10
    if metric == "ap":
        scores, target = scores[..., 0] + 2 * (target == 0), (target == 0).long()
    paper, ours = (
        quality(scores, target, metric, surface(), _seeded()) for surface in (InverseDistance, DistanceSpline)
    )
    assert [row.distance for row in ours] == [0, 1 / 512, 1 / 128, 1 / 32, 1 / 8, 1 / 2]
    for rows in (paper, ours):
        assert rows[0].error < 0.1 < rows[-2].error
        assert rows[-2].correlation > 0.1
    for near, far in zip(paper[-2:], ours[-2:], strict=True):
        assert far.error < 0.7 * near.error


# ------------------------------------------------------------------ bad input

ONES, LABELS = torch.ones(4), torch.tensor([1, 0, 1, 0])
BAD = [
    ({"metric": "app"}, r"metric must be a function, a Refactoring, or a known name, but it is 'app'.*ap"),
    ({"fraction": 0}, r"fraction must be a share of the comparisons, above 0 and at most 1, but it is 0"),
    ({"fraction": 1.5}, r"fraction must be"),
    ({"anchors": 0}, r"anchors must be a whole number of at least 1, but it is 0"),
    ({"anchors": True}, r"anchors must be"),
    ({"interpolation": "idw"}, r"interpolation must be one of"),
    ({"value": "true"}, r"value must be one of"),
    ({"reduction": "avg"}, r"reduction must be one of"),
    ({"batch_dims": -1}, r"batch_dims must be a whole number of at least 0, but it is -1"),
    ({"scores": ONES.long()}, r"scores must be floating point"),
    ({"scores": ONES * float("nan")}, r"scores must be finite"),
    ({"scores": torch.ones(0), "target": torch.ones(0)}, r"scores must not be empty"),
    ({"scores": torch.ones(3)}, r"target must have the shape of scores"),
    ({"target": LABELS + 1}, r"target must"),
    ({"target": None}, r"target must be a torch.Tensor"),
    ({"mask": ONES}, r"mask must"),
    ({"generator": 3}, r"generator must be a torch.Generator, but it is a int"),
    ({"best_scores": 3}, r"best_scores must be a function of scores and target, but it is a int"),
    ({"likelihood": -1}, r"likelihood must be a finite number of at least 0, but it is -1"),
    ({"likelihood": "some"}, r"likelihood must be a number of at least 0 or \"auto\", but it is 'some'"),
    ({"maximize": "yes"}, r"maximize must be True or False, but it is 'yes'"),
    ({"mask": torch.ones(3, dtype=torch.bool)}, r"mask must"),
    ({"metric": "accuracy"}, r"scores must have shape"),
    ({"metric": "accuracy", "scores": torch.ones(4, 1)}, r"scores must have at least two classes"),
    ({"metric": "accuracy", "scores": torch.ones(4, 3), "target": LABELS + 5}, r"target must"),
    ({"metric": "pckh"}, r"scores must have shape \(\.\.\., h, w\)"),
    ({"best_scores": lambda s, t: s[:2]}, r"best_scores\(scores, target\) must return scores of shape \(4,\)"),
    (
        {"metric": Refactoring(lambda s, t: s[None], lambda b, t: b.sum())},
        r"comparisons\(scores, target\) must return a tensor of shape \(l,\), not empty, but it is of shape \(1, 4\)",
    ),
    (
        {"metric": Refactoring(lambda s, t: s, lambda b, t: b)},
        r"metric must return one number, but it is a tensor of shape \(4,\)",
    ),
    ({"target": LABELS * 2}, r"target must hold only 0 or 1, but it is 2 at index \[0\]\. Relevance is binary"),
    ({"target": -LABELS}, r"target must hold only 0 or 1, but it is -1"),
    (
        {"scores": ONES * 1e38},
        r"scores must be at most 3e\+35, so that their differences are finite, but it is up to 1e",
    ),
    ({"batch_dims": 3}, r"batch_dims must be 0, because a problem of AveragePrecisionPairs\(\) always has 1"),
    (
        {"batch_dims": 3, "metric": dl.metrics.f_beta},
        r"batch_dims must be at most 1, the dimensions of scores, but it is 3",
    ),
    (
        {"metric": Refactoring(lambda s, t: s, lambda b, t: b.sum(), best_scores=lambda s, t: s[:3])},
        r"best_scores\(scores, target\) must return scores of shape \(4,\), but it is of shape \(3,\)",
    ),
    (
        {"metric": Refactoring(lambda s, t: (s > 0).float(), lambda b, t: b.sum())},
        r"comparisons\(scores, target\) must be differentiable in scores, but it is a tensor of torch.float32 without",
    ),
    (
        {"metric": Refactoring(lambda s, t: s / (s - 1) * 0, lambda b, t: b.float().mean())},
        r"comparisons must be numbers, but it is NaN 4 times, first number 0",
    ),
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"comparisons": 3, "value": 4}, r"comparisons must be a function of scores and target, but it is a int"),
        ({"value": None}, r"value must be a function of binaries and target, but it is a NoneType"),
        ({"best_scores": torch.ones(3)}, r"best_scores must be a function of scores and target, but it is a Tensor"),
    ],
)
def test_refactorings_are_made_of_functions(given: dict[str, object], message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        Refactoring(**{"comparisons": lambda s, t: s, "value": lambda b, t: b.sum(), **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["ap", "f1", dl.metrics.auc])
@pytest.mark.parametrize("peak", [1e20, 1e35])
@pytest.mark.parametrize("options", [{}, {"fraction": 0.5}, {"anchors": Anchoring(flips=2)}])
def test_very_large_scores_have_finite_anchors(metric: object, peak: float, options: dict[str, object]) -> None:
    scores = torch.randn(12, generator=_seeded(3))
    scores = (scores * (peak / scores.abs().amax())).requires_grad_()
    target = (torch.arange(12) % 3 == 0).long()
    loss = uniloss(scores, target, metric, generator=_seeded(), **options)  # type: ignore[arg-type]
    loss.backward()
    assert 0 <= loss.item() <= 1
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
    best = _ideal(scores.detach() * 1e3, target * 5)
    assert bool(torch.isfinite(best).all())
    assert dl.metrics.auc(best, target) == 1


def test_wrong_direction_or_wrong_best_scores_are_noticed_on_first_use() -> None:
    def errors(scores: Tensor, target: Tensor) -> Tensor:
        return ((scores > 0) != target).double().sum()

    scores, target = torch.tensor([1.0, -1.0, 2.0], requires_grad=True), torch.tensor([1, 1, 0])
    with pytest.raises(DirectLossError, match=r"best_scores must have a metric at least as good.*maximize=False"):
        uniloss(scores, target, errors)
    assert uniloss(scores, target, errors, maximize=False).item() == 2
    with pytest.raises(DirectLossError, match=r"best_scores must have a metric at least as good.*maximize=True"):
        uniloss(scores, target, errors, maximize=False, best_scores=lambda s, t: 1.0 - 2.0 * t)


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input(arguments: dict[str, object], message: str) -> None:
    complete = {"scores": ONES, "target": LABELS, "metric": "ap", **arguments}
    with pytest.raises(DirectLossError, match=message):
        dl.uniloss(**complete)  # type: ignore[arg-type]


# ------------------------------------------------------------------ metrics in real use


@pytest.mark.parametrize(("n", "scale"), [(100, 1.0), (40, 10.0), (33, 30.0)])
def test_rounding_inside_of_a_metric_is_no_reason_to_refuse_it(n: int, scale: float) -> None:
    """A sigmoid in single precision ties large scores, and its vectorised tail rounds otherwise than its body."""
    for seed in range(4):
        scores = (scale * torch.randn(n, generator=_seeded(seed))).requires_grad_()
        target = (torch.arange(n) % 4 == 0).long()
        for metric in (binary_auroc, binary_average_precision):
            uniloss(scores, target, metric, generator=_seeded(seed)).backward()
        assert scores.grad is not None
        assert bool(torch.isfinite(scores.grad).all())


def test_a_metric_that_is_nan_for_an_anchor_is_refused() -> None:
    def precision(scores: Tensor, target: Tensor) -> Tensor:
        chosen = scores > 0
        return (chosen & (target == 1)).sum() / chosen.sum()

    scores, target = torch.tensor([-1.0, -2.0, -0.5, 0.3], requires_grad=True), torch.tensor([0, 0, 1, 0])
    with pytest.raises(DirectLossError, match=r"metric must be a finite number for all scores, but it is nan for"):
        uniloss(scores, target, precision, generator=_seeded())


@pytest.mark.parametrize("metric", ["ap", dl.metrics.average_precision, binary_average_precision])
def test_inference_mode(metric: object) -> None:
    scores, target = problem("ap")
    expected = uniloss(scores, target, metric, generator=_seeded())  # type: ignore[arg-type]
    with torch.inference_mode():
        torch.testing.assert_close(uniloss(scores, target, metric, generator=_seeded()), expected)  # type: ignore[arg-type]


def test_probabilities_are_warned_about() -> None:
    with pytest.warns(DirectLossWarning, match="UniLoss takes logits"):
        uniloss(torch.rand(12, generator=_seeded(4)), torch.arange(12) % 2, dl.metrics.auc, generator=_seeded())


def test_masks_that_would_change_the_shape_of_a_metric_are_refused() -> None:
    scores, target = torch.randn(6, 3, generator=_seeded(5)), (torch.arange(18) % 2).reshape(6, 3)
    with pytest.raises(DirectLossError, match=r"mask must have one dimension for a metric function"):
        UniLoss(lambda s, t: ((s > 0) == (t == 1)).float().mean(0).min())(scores, target, torch.ones(6, 3).bool())


def test_spline_through_a_part_of_the_comparisons_stays_in_range() -> None:
    scores, target = torch.randn(6, 4, generator=_seeded(1)), torch.arange(6) % 4
    for seed in range(8):
        options = {
            "interpolation": "distance-spline",
            "fraction": 0.1,
            "generator": _seeded(seed),
            "value": "interpolated",
        }
        assert 0 < uniloss(scores, target, "accuracy", **options).item() < 1  # type: ignore[arg-type]


def test_explain_of_a_metric_with_a_name() -> None:
    scores, target = torch.randn(2, 10, generator=_seeded(2)), (torch.arange(10) % 3 == 0).long().expand(2, 10)
    assert UniLoss("ap").explain(scores, target) == "AveragePrecisionPairs(), written by hand: 24 comparisons."
    with pytest.raises(DirectLossError, match="scores must be finite"):
        UniLoss("ap").explain(scores * float("nan"), target)


def test_a_metric_that_no_score_changes_has_its_value_and_counts() -> None:
    scores = torch.tensor([[1.0, -1.0, 2.0], [3.0, 1.0, -1.0]], requires_grad=True)
    target = torch.tensor([[1, 1, 1], [1, 0, 0]])
    each = UniLoss("mcc", reduction="none")(scores, target)
    torch.testing.assert_close(each, dl.direct_loss(scores, target, "mcc", reduction="none"), check_dtype=False)
    loss = UniLoss("mcc")(scores, target)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(each.detach().mean()))
    assert scores.grad is not None
    assert scores.grad[0].tolist() == [0, 0, 0]
