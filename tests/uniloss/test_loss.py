"""The loss: values, gradients by finite differences, compiled and general way alike, batches, masks, types, errors."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

import directloss as dl
from benchmarks.interpolation import quality
from directloss import Anchoring, DirectLossError, DirectLossWarning, Refactoring, UniLoss, kernels, uniloss
from directloss._uniloss import compiled
from directloss._uniloss.byhand import BY_HAND, PairRefactoring
from directloss._uniloss.comparisons import Pairs
from directloss._uniloss.spacing import between
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


def _true(name: str, scores: Tensor, target: Tensor) -> float:
    if name == "pckh":
        highest = scores.flatten(-2).argmax(-1, keepdim=True)
        return target.flatten(-2).gather(-1, highest).double().mean().item()
    metric = {"ap": dl.metrics.average_precision, "accuracy": dl.metrics.accuracy}[name]
    return metric(scores, target).item()


WAYS: list[dict[str, object]] = [
    {},
    {"interpolation": "distance-spline"},
    {"fraction": 0.4},
    {"anchors": 5},
    {"anchors": Anchoring(flips=2)},
    {"anchors": Anchoring(best="nearest")},
    {"anchors": Anchoring(unit="score")},
    {"maximize": False, "best_scores": lambda scores, target: -_ideal(scores, target)},
]


@pytest.mark.parametrize("options", WAYS, ids=[f"way{k}" for k in range(len(WAYS))])
def test_gradient_against_finite_differences(named: Problem, options: dict[str, object]) -> None:
    """Anchors are held fixed, as they are within one step: only the relaxed part is differentiated."""
    name, scores, target = named
    loss, gradient = _loss_and_gradient(scores, target, name, value="interpolated", **options)
    loss_fn = UniLoss(name, generator=_seeded(), **options)  # type: ignore[arg-type]
    (relaxed,) = loss_fn.relax(scores, target)
    assert relaxed is not None
    bound = loss_fn.refactored.bind(scores, target)
    assert bound is not None
    comparisons = bound.comparisons
    if "fraction" in options:
        kept = torch.randperm(comparisons.count, generator=_seeded())[: round(0.4 * comparisons.count)]
        comparisons = comparisons.take(kept)
    anchors = relaxed.anchors

    def value(flat: Tensor) -> Tensor:
        squared = anchors.configurations.squared_distances(torch.sigmoid(comparisons.values(flat)))
        surface = loss_fn.interpolation(squared, anchors.values.to(squared.dtype), anchors.configurations.between)
        return surface if options.get("maximize") is False else 1 - surface

    assert loss.item() == pytest.approx(value(scores.flatten()).item())
    step = 1e-6
    for item in range(0, scores.numel(), 7):
        bump = torch.zeros(scores.numel(), dtype=scores.dtype)
        bump[item] = step
        slope = (value(scores.flatten() + bump) - value(scores.flatten() - bump)) / (2 * step)
        assert gradient.flatten()[item].item() == pytest.approx(slope.item(), abs=1e-8)


def _both_ways(scores: Tensor, target: Tensor, metric: object, rtol: float = 1e-12, **options: object) -> None:
    with kernels.use("compiled"):
        fast = _loss_and_gradient(scores, target, metric, **options)
    with kernels.use("tensor"):
        general = _loss_and_gradient(scores, target, metric, **options)
    torch.testing.assert_close(fast, general, rtol=rtol, atol=0.01 * rtol)


@pytest.mark.parametrize("metric", ["ap", "accuracy", "pckh", dl.metrics.average_precision, dl.metrics.accuracy])
@pytest.mark.parametrize("seed", range(4))
def test_compiled_loops_equal_the_general_way(metric: object, seed: int) -> None:
    names = {dl.metrics.average_precision: "ap", dl.metrics.accuracy: "accuracy"}
    scores, target = problem(metric if isinstance(metric, str) else names[metric], seed)
    _both_ways(scores, target, metric)
    _both_ways(scores, target, metric, value="interpolated", anchors=Anchoring(3, 0, 2, control=True))


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
def test_compiled_loops_read_the_labels_alone(name: str) -> None:
    """Without the comparisons of the general way: the same lists."""
    scores, target = problem(name, 2)
    refactored = BY_HAND[name]
    assert isinstance(refactored, PairRefactoring)
    lists, bound = refactored.layout(scores, target), refactored.bind(scores, target)
    assert lists is not None
    assert bound is not None
    for part, same in zip(lists, compiled.lists_of(bound, Anchoring()) or (), strict=True):
        assert np.array_equal(part, same)


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
def test_both_ways_draw_alike_step_after_step(name: str) -> None:
    found = []
    for way in ("compiled", "tensor"):
        loss_fn = UniLoss(name, generator=_seeded())
        with kernels.use(way):
            for seed in range(3):
                scores, target = problem(name, seed)
                leaf = scores.clone().requires_grad_()
                loss = loss_fn(leaf, target)
                found.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    torch.testing.assert_close(found[:3], found[3:], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_batches_with_masks_and_weights_equal_the_general_way(name: str, dtype: torch.dtype, reduction: str) -> None:
    """Padding, a problem without weight, one without anything to compare, and one in which all anchors are alike."""
    pairs = [problem(name, seed) for seed in range(4)]
    if name == "pckh":  # a problem is a set of heatmaps
        pairs = [(scores[None], target[None]) for scores, target in pairs]
    scores, target = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    scores = scores.to(dtype)
    mask = torch.rand(target.shape, generator=_seeded(9)) < 0.8
    mask[3] = mask[3] & (target[3] == 0) if name == "ap" else mask[3]
    options = {"batch_dims": 1} if name == "pckh" else {}
    weight = torch.tensor([1.0, 2.0, 0.0, 0.5])
    found = []
    for way in ("compiled", "tensor"):
        loss_fn = UniLoss(name, generator=_seeded(), reduction=reduction, **options)  # type: ignore[arg-type]
        leaf = scores.clone().requires_grad_()
        with kernels.use(way), warnings.catch_warnings():
            warnings.simplefilter("ignore", DirectLossWarning)
            loss = loss_fn(leaf, target, mask, weight)
            loss.square().sum().backward()
        found.append((loss.detach(), leaf.grad))
    tolerance = {"rtol": 1e-12, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(found[0], found[1], **tolerance)
    assert bool(found[0][1].any())


@pytest.mark.parametrize("scale", [300.0, 1e4, 1e200])
def test_compiled_loops_know_scores_that_are_far_apart(scale: float) -> None:
    """Where the exponential of a single score is no number, or the sigmoid of a difference is 0 or 1."""
    scores, target = problem("ap", 3)
    _both_ways(scores.where(torch.arange(len(scores)) % 3 > 0, scores * scale), target, "ap")


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
@pytest.mark.parametrize("unit", ["comparison", "score"])
@pytest.mark.parametrize("numbers", [(16, 16, 16), (0, 9, 4), (5, 0, 3), (1, 40, 0), (3, 2, 1)])
def test_compiled_loops_know_how_far_anchors_are_apart(name: str, unit: str, numbers: tuple[int, int, int]) -> None:
    """The distance spline, and with it any interpolation that asks."""
    for seed in range(3):
        scores, target = problem(name, seed)
        options = {
            "anchors": Anchoring(*numbers, unit=unit),
            "interpolation": "distance-spline",
            "value": "interpolated",
        }
        _both_ways(scores, target, name, rtol=1e-9, **options)


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
def test_distances_among_anchors_are_those_of_their_bits(name: str) -> None:
    scores, target = problem(name, 5)
    refactored = BY_HAND[name]
    assert isinstance(refactored, PairRefactoring)
    how = Anchoring(6, 20, 5, unit=refactored.unit)
    (relaxed,) = UniLoss(name, anchors=how, generator=_seeded()).relax(scores, target)
    assert relaxed is not None
    bits = relaxed.anchors.configurations.dense()
    lists = refactored.layout(scores, target)
    assert lists is not None
    step = compiled.Step(scores.detach().flatten(), lists, how, _seeded())
    assert np.array_equal(between(step), (bits[:, None] != bits).sum(-1).numpy())


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
@pytest.mark.parametrize("unit", ["comparison", "score"])
@pytest.mark.parametrize("control", [False, True])
def test_compiled_loops_know_both_units_and_controls(name: str, unit: str, control: bool) -> None:
    scores, target = problem(name, 7)
    for numbers in ((16, 16, 16), (0, 9, 4), (5, 0, 3), (1, 40, 0)):
        _both_ways(scores, target, name, anchors=Anchoring(*numbers, unit=unit, control=control))


@pytest.mark.parametrize("seed", range(6))
def test_compiled_lists_may_have_any_sizes(seed: int) -> None:
    """Some heatmaps without a keypoint, some pixels that do not count, one relevant pixel or nearly all of them."""
    draw = _seeded(seed)
    scores = torch.randn(7, 5, 4, generator=draw, dtype=torch.float64)
    target = (torch.rand(7, 5, 4, generator=draw) < torch.rand(7, 1, 1, generator=draw)).long()
    target[0], target[1], target[2] = 0, 1, -1
    target[3].flatten()[:] = torch.where(torch.arange(20) == 11, 1, 0)
    target[4, 0] = -1
    _both_ways(scores, target, "pckh")
    _both_ways(scores, target, "pckh", anchors=Anchoring(4, 30, 4, unit="score"))
    bound = BY_HAND["pckh"].bind(scores, target)
    assert bound is not None
    assert isinstance(bound.comparisons, Pairs)
    assert len(bound.comparisons.sizes.unique(dim=0)) > 1


def test_lists_of_any_sizes_are_found_in_code() -> None:
    def best_is_relevant(scores: Tensor, target: Tensor) -> Tensor:
        return target.gather(1, scores.argmax(1, keepdim=True)).float().mean()

    target = torch.tensor([[1, 0, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0]])
    scores = torch.randn(4, 4, generator=_seeded(1), dtype=torch.float64)
    _both_ways(scores, target, best_is_relevant)
    bound = UniLoss(best_is_relevant).refactored.bind(scores, target)
    assert bound is not None
    assert isinstance(bound.comparisons, Pairs)
    assert bound.comparisons.sizes.tolist() == [[1, 3], [3, 1], [2, 2]]


@pytest.mark.parametrize("name", ["ap", "accuracy", "pckh"])
@pytest.mark.parametrize("unit", ["comparison", "score"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_compiled_loops_know_ties(name: str, unit: str, steps: int) -> None:
    """All scores equal, as at the beginning of a zero-initialised head, or on a coarse grid."""
    scores, target = problem(name, 5)
    tied = (scores * steps).round()
    _both_ways(tied, target, name, anchors=Anchoring(unit=unit))
    _both_ways(tied, target, name, value="interpolated")
    assert UniLoss(name)(tied, target).item() == pytest.approx(1 - _true(name, tied, target))


def test_compiled_loops_take_over_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a comparison of both ways cannot pass by comparing the general way with itself."""
    scores, target = problem("pckh", 1)
    monkeypatch.setattr(compiled, "interpolate", lambda *given: 1 / 0)
    for options in ({}, {"anchors": Anchoring(unit="score", control=True)}):
        with kernels.use("compiled"), pytest.raises(ZeroDivisionError):
            _loss_and_gradient(scores, target, "pckh", **options)


@pytest.mark.parametrize(("name", "metric"), [("ap", dl.metrics.average_precision), ("accuracy", dl.metrics.accuracy)])
def test_found_and_hand_written_refactorings_agree(name: str, metric: object) -> None:
    scores, target = problem(name, 3)
    torch.testing.assert_close(
        _loss_and_gradient(scores, target, name), _loss_and_gradient(scores, target, metric), rtol=1e-10, atol=1e-12
    )


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
    assert metric.item() == pytest.approx(1 - bound.measure(bound.scores[None]).item())
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
    scores = torch.randn(10_000, generator=_seeded(3)).requires_grad_()
    target = (torch.arange(10_000) < 1_000).long()
    uniloss(scores, target, "ap", generator=_seeded()).backward()
    assert scores.grad is not None
    assert scores.grad[:1_000].mean() < 0 < scores.grad[1_000:].mean()
    assert scores.grad.sum().item() == pytest.approx(0, abs=1e-6)


# ------------------------------------------------------------------ a refactoring of one's own


def _own() -> Refactoring:
    return Refactoring(
        comparisons=lambda scores, target: scores * (2 * target - 1),
        value=lambda binaries, target: binaries.double().mean(),
    )


@pytest.mark.parametrize("space", ["scores", "bits"])
def test_own_refactoring_learns(space: str) -> None:
    free = torch.randn(12, dtype=torch.float64, generator=_seeded(4)).requires_grad_()
    target = torch.arange(12) % 2
    loss_fn = UniLoss(_own(), anchors=Anchoring(space=space), generator=_seeded())
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
        assert rows[-2].correlation > 0.2
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
        r"value\(binaries, target\) must return a tensor with one number, but it is of shape \(4,\)",
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
        {"metric": Refactoring(lambda s, t: s, lambda b, t: b.sum(), best=lambda t: t[:3])},
        r"best\(target\) must return one binary for each comparison, shape \(4,\), but it is of shape \(3,\)",
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
        ({"best": "ones"}, r"best must be a function of target, or None, but it is a str"),
        ({"best_scores": torch.ones(3)}, r"best_scores must be a function of scores and target, but it is a Tensor"),
    ],
)
def test_refactorings_are_made_of_functions(given: dict[str, object], message: str) -> None:
    with pytest.raises(DirectLossError, match=message):
        Refactoring(**{"comparisons": lambda s, t: s, "value": lambda b, t: b.sum(), **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["ap", "f1", dl.metrics.auc])
@pytest.mark.parametrize("peak", [1e20, 1e35])
@pytest.mark.parametrize("options", [{}, {"fraction": 0.5}, {"anchors": Anchoring(best="nearest", flips=2)}])
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

    scores, target = torch.tensor([1.0, -1.0, 2.0]), torch.tensor([1, 1, 0])
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

    scores, target = torch.tensor([-1.0, -2.0, -0.5, 0.3]), torch.tensor([0, 0, 1, 0])
    with pytest.raises(DirectLossError, match=r"metric must be a finite number for all scores, but it is nan for"):
        uniloss(scores, target, precision, generator=_seeded())


def test_a_metric_may_write_into_its_scores() -> None:
    def shifting(scores: Tensor, target: Tensor) -> Tensor:
        scores.sub_(0.1)
        return ((scores > 0) == (target == 1)).float().mean()

    scores = torch.randn(12, generator=_seeded(3))
    before = scores.clone()
    uniloss(scores, torch.arange(12) % 2, shifting, generator=_seeded())
    assert torch.equal(scores, before)


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
