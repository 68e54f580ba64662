"""Averages by name, against the definitions of scikit-learn and against the losses themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, jaccard_score
from torch import Tensor

import directloss as dl
from directloss.averaging import margins


def drawn(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores, and classes that they tell something about."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=draw)
    return scores, (scores + torch.randn(shape, generator=draw)).argmax(1)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize(("name", "oracle"), [("f1", f1_score), ("iou", jaccard_score)])
def test_values_of_classes_are_those_of_scikit_learn(average: str, name: str, oracle: Any) -> None:
    scores, classes = drawn(60, 4)
    wanted = oracle(classes, scores.argmax(1), average=average)
    assert float(dl.AveragedLoss(name, average=average)(scores, classes)) == pytest.approx(1 - wanted, abs=1e-6)


def test_values_of_labels_are_those_of_scikit_learn() -> None:
    scores, _ = drawn(40, 5)
    labels = (torch.rand(40, 5, generator=torch.Generator().manual_seed(1)) < 0.4).long()
    labels[:, 0] = 1  # so that every sample has a label
    for average in ("macro", "micro", "weighted", "samples"):
        wanted = f1_score(labels, scores > 0, average=average)
        found = dl.AveragedLoss("f1", average=average)(scores, labels)
        assert float(found) == pytest.approx(1 - wanted, abs=1e-6)


def test_a_ranking_of_classes_ranks_the_scores_themselves() -> None:
    scores, classes = drawn(50, 3)
    labels = torch.nn.functional.one_hot(classes, 3)
    wanted = average_precision_score(labels, scores, average="macro")
    assert float(dl.AveragedLoss("ap")(scores, classes)) == pytest.approx(1 - wanted, abs=1e-6)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples", "samples_macro"])
def test_ignored_pixels_are_as_if_they_were_not_there(average: str) -> None:
    scores, classes = drawn(2, 3, 4, 6)
    part = dl.AveragedLoss("iou", average=average, epsilon="auto")
    whole = dl.AveragedLoss("iou", average=average, ignore_index=255, epsilon="auto")
    padded, spoilt = torch.cat([scores, scores[..., :2] * torch.nan], 3), torch.full((2, 4, 2), 255)
    padded = padded.nan_to_num().requires_grad_()
    some = scores.clone().requires_grad_()
    wanted, found = part(some, classes), whole(padded, torch.cat([classes, spoilt], 2))
    wanted.backward()
    found.backward()
    assert found.item() == pytest.approx(wanted.item())
    torch.testing.assert_close(padded.grad[..., :6], some.grad)
    assert not padded.grad[..., 6:].any()
    masked = dl.AveragedLoss("iou", average=average)(
        padded,
        torch.cat([classes, spoilt * 0], 2),
        torch.cat([torch.ones(2, 4, 6, dtype=torch.bool), torch.zeros(2, 4, 2, dtype=torch.bool)], 2),
    )
    assert masked.item() == pytest.approx(wanted.item())


def test_masks_of_one_score_for_each_pixel() -> None:
    scores = torch.randn(3, 1, 5, 4, generator=torch.Generator().manual_seed(0))
    masks = (torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(1)) < 0.5).long()
    each = dl.AveragedLoss("iou", average="samples")(scores, masks)
    torch.testing.assert_close(each, dl.DirectLoss("iou", dim=(1, 2))(scores.squeeze(1), masks))
    batch = dl.AveragedLoss("dice", average="macro")(scores, masks)
    torch.testing.assert_close(batch, dl.DirectLoss("dice")(scores.flatten(), masks.flatten()))
    torch.testing.assert_close(dl.AveragedLoss("dice")(scores, masks.unsqueeze(1).bool()), batch)
    flat = dl.AveragedLoss("f1")(scores[:, 0, 0, 0], masks[:, 0, 0])
    torch.testing.assert_close(flat, dl.DirectLoss("f1")(scores[:, 0, 0, 0], masks[:, 0, 0]))


def test_the_mean_iou_of_images() -> None:
    scores, classes = drawn(3, 4, 5, 5)
    found = dl.AveragedLoss("iou", average="samples_macro", reduction="none")(scores, classes)
    assert found.shape == (3, 4)
    chosen = scores.argmax(1)
    for image in range(3):
        for one in range(4):
            a, b = chosen[image] == one, classes[image] == one
            assert float(found[image, one]) == pytest.approx(1 - int((a & b).sum()) / int((a | b).sum()))


def test_classes_that_are_not_there_do_not_count() -> None:
    """Of three classes the first image shows two, and a pixel of the third is predicted; the second shows all."""
    scores, classes = drawn(2, 3, 2, 5)
    classes[0] = torch.tensor([[0, 1, 1, 0, 1], [0, 0, 1, 1, 0]])
    scores[0, 2, 0, 0] = 9
    chosen = scores.argmax(1)
    iou = [[jaccard_score(classes[i].flatten() == c, chosen[i].flatten() == c) for c in range(3)] for i in range(2)]
    each = dl.AveragedLoss("iou", average="samples_macro")(scores, classes)
    assert float(each) == pytest.approx(1 - sum(iou[0][:2] + iou[1]) / 5, abs=1e-6)
    macro = dl.AveragedLoss("iou", average="macro")(scores[:1], classes[:1])
    assert float(macro) == pytest.approx(1 - sum(iou[0][:2]) / 2, abs=1e-6)
    empty = dl.AveragedLoss("iou", average="macro")(torch.ones(2, 1, 3, 3), torch.zeros(2, 3, 3, dtype=torch.long))
    assert float(empty) == 1  # one score for each pixel: an empty mask counts


def test_margins_decide_as_the_highest_score_does() -> None:
    scores, _ = drawn(7, 5, 3)
    wanted = torch.nn.functional.one_hot(scores.argmax(1), 5).movedim(-1, 1).bool()
    assert torch.equal(margins(scores) > 0, wanted)
    for one in range(5):
        others = torch.cat([scores[:, :one], scores[:, one + 1 :]], 1).amax(1)
        torch.testing.assert_close(margins(scores)[:, one], scores[:, one] - others)


@pytest.mark.parametrize("options", [{}, {"epsilon": "auto"}], ids=str)
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_the_first_of_tied_classes_is_predicted(average: str, options: dict[str, Any]) -> None:
    scores = torch.randint(-1, 2, (30, 4)).double().requires_grad_()
    classes = torch.arange(30) % 4
    wanted = 1 - f1_score(classes, scores.detach().argmax(1), average=average)
    loss = dl.AveragedLoss("f1", average=average, **options)(scores, classes)
    assert loss.item() == pytest.approx(wanted, abs=1e-6)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_micro_averages_are_one_graph() -> None:
    scores, classes = drawn(6, 3)
    loss_fn = dl.AveragedLoss("f1", average="micro")
    whole = torch.compile(loss_fn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(scores.requires_grad_(), classes), loss_fn(scores, classes))


@pytest.mark.parametrize("average", ["macro", "micro", "samples_macro"])
def test_it_learns(average: str) -> None:
    torch.manual_seed(0)
    images, network = torch.randn(4, 3, 8, 8), torch.nn.Conv2d(3, 3, 1)
    classes = images.argmax(1)
    loss_fn = dl.AveragedLoss("iou", average=average)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    first = loss_fn(network(images), classes).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = loss_fn(network(images), classes)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3 * first


def test_other_losses_and_what_is_told() -> None:
    scores, classes = drawn(20, 3)
    assert float(dl.AveragedLoss("f1", loss=dl.HingeLoss)(scores, classes)) > 0
    assert repr(dl.AveragedLoss("f1", ignore_index=255)).startswith(
        "AveragedLoss(\n  average='macro', ignore_index=255"
    )


@pytest.mark.parametrize(
    ("settings", "target", "message"),
    [
        ({"average": "mean"}, torch.zeros(6, dtype=torch.long), "average must be one of"),
        ({"task": "accuracy"}, torch.zeros(6, dtype=torch.long), "task must be a metric of several decisions or ranks"),
        ({"dim": 1}, torch.zeros(6, dtype=torch.long), "dim must be left out: average decides which decisions"),
        ({}, torch.zeros(5, dtype=torch.long), r"target must have shape \(6,\) or \(6, 3\): scores \(n, c, ...\)"),
        (
            {},
            torch.full((6,), 255),
            r"target must hold classes from 0 to 2, but it is 255. Ignore such targets with ignore_index=255",
        ),
        ({}, torch.zeros(6), r"target must hold whole numbers, .* Call target.long\(\)"),
    ],
)
def test_bad_input(settings: dict[str, Any], target: Tensor, message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=message):
        dl.AveragedLoss(**{"task": "f1", **settings})(torch.randn(6, 3), target)


def test_other_losses_tell_of_averages() -> None:
    """What people type first: masks without the dimension of one class, a border of 255, scikit-learn's names."""
    scores, masks = torch.randn(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.long)
    for dim in (None, (-2, -1)):
        with pytest.raises(dl.DirectLossError, match=r"target \(n, ...\) are for dl.AveragedLoss"):
            dl.DirectLoss("iou", dim=dim)(scores, masks)
    masks[:, 0] = 255
    with pytest.raises(dl.DirectLossError, match="Ignore such targets with ignore_index=255"):
        dl.AveragedLoss("iou", average="samples")(scores, masks)
    with pytest.raises(dl.DirectLossError, match=r'AveragedLoss\("f1", average="macro"\)'):
        dl.DirectLoss("f1_macro")


@pytest.mark.parametrize("average", ["macro", "weighted", "samples_macro"])
@pytest.mark.parametrize("name", ["f1", "iou"])
def test_the_value_does_not_depend_on_the_kind_of_gradient(name: str, average: str) -> None:
    """Samples with different numbers of classes and of ignored pixels included."""
    scores, classes = drawn(3, 4, 5, 5)
    classes[0], classes[1] = classes[0] % 2, classes[1] % 3
    classes[2, 0] = 255
    moves, theorem = (
        dl.AveragedLoss(name, average=average, ignore_index=255, **options)(scores, classes)
        for options in ({}, {"epsilon": "auto"})
    )
    torch.testing.assert_close(moves, theorem)


def test_known_wrong_labels_of_several_labels() -> None:
    scores, _ = drawn(30, 3)
    labels = (scores + torch.randn(30, 3, generator=torch.Generator().manual_seed(1)) > 0).long()
    each = [float(dl.direct_loss(scores[:, k], labels[:, k], "f1", flips=0.1)) for k in range(3)]
    assert float(dl.AveragedLoss("f1", flips=0.1)(scores, labels)) == pytest.approx(sum(each) / 3)
    for average in ("macro", "micro"):
        with pytest.raises(dl.DirectLossError, match="flips must be 0 for class indices"):
            dl.AveragedLoss("f1", average=average, flips=0.1)(scores, labels[:, 0])


def test_labels_and_scores_of_small_dtypes() -> None:
    scores, classes = drawn(20, 3)
    wanted = dl.AveragedLoss("f1")(scores, classes)
    assert dl.AveragedLoss("f1")(scores, classes.to(torch.uint16)) == wanted
    far = torch.tensor([[6e4, -6e4, 0.0]])  # differences are infinite in half precision
    assert float(dl.AveragedLoss("f1", average="micro")(far.half(), torch.tensor([0]))) == 0
