"""Every wrong input is refused with a message that names the argument, the rule and the value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import _registry as registry
from tests.toys import Pick

SCORES = torch.tensor([[0.3, 0.1, 0.2], [1.0, -1.0, 0.5]])
LABELS = torch.tensor([[0, 1, 0], [1, 0, 0]])
CLASSES = torch.tensor([0, 2])
MASK = torch.ones(2, 3, dtype=torch.bool)


def free(scores: Any) -> Any:
    """Scores that have a gradient: nothing may be computed of wrong input before it is refused."""
    fit = isinstance(scores, Tensor) and scores.is_floating_point() and not scores.requires_grad
    return scores.clone().requires_grad_() if fit else scores


def training(scores: Any, target: Any, task: Any, **options: Any) -> Tensor:
    return dl.direct_loss(free(scores), target, task, **options)


def training_a_module(
    scores: Any, target: Any, task: Any, mask: Any = None, weight: Any = None, **options: Any
) -> Tensor:
    dim = options.pop("dim", None)
    loss_fn = dl.DirectLoss(task, **options)
    loss_fn.dim = dim  # which the module would refuse when built
    return loss_fn(free(scores), target, mask, weight)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "direct_loss": dl.direct_loss,
    "training": training,
    "training by Theorem 1": partial(training, epsilon="auto"),
    "training a module": training_a_module,
    "hinge_loss": dl.hinge_loss,
    "perceptron_loss": dl.perceptron_loss,
}


def changed(tensor: Tensor, value: float) -> Tensor:
    result = tensor.clone()
    result[1, 2] = value
    return result


# What is changed in a good call of "ap", the argument that the message starts with, and a piece of the message.
WRONG_FOR_ALL: list[tuple[dict[str, Any], str, str]] = [
    # scores
    ({"scores": changed(SCORES, math.nan)}, "scores", "must be finite, but it is nan at index [1, 2] (1 of 6 values"),
    ({"scores": changed(SCORES, math.inf)}, "scores", "must be finite, but it is inf at index [1, 2]"),
    ({"scores": changed(SCORES, -math.inf)}, "scores", "must be finite, but it is -inf"),
    ({"scores": SCORES.long()}, "scores", "must be floating point, but it is torch.int64. Call scores.float()"),
    ({"scores": SCORES.to(torch.complex64)}, "scores", "must be floating point, but it is torch.complex64"),
    ({"scores": SCORES.tolist()}, "scores", "must be a torch.Tensor, but it is a list"),
    ({"scores": None}, "scores", "must be a torch.Tensor, but it is a NoneType"),
    (
        {"scores": torch.tensor(1.0), "target": torch.tensor(1)},
        "scores",
        "must have shape (..., n), but it is of shape ()",
    ),
    ({"scores": torch.zeros(0), "target": torch.zeros(0)}, "scores", "must not be empty, but it is of shape (0,)"),
    (
        {"scores": torch.zeros(0, 3), "target": torch.zeros(0, 3)},
        "scores",
        "must not be empty, but it is of shape (0, 3)",
    ),
    # target
    ({"target": LABELS[:, :2]}, "target", "must have the shape of scores, (2, 3), but it is of shape (2, 2)"),
    ({"target": LABELS[0]}, "target", "must have the shape of scores, (2, 3), but it is of shape (3,)"),
    (
        {"scores": torch.zeros(2, 1, 4, 4), "target": torch.zeros(2, 4, 4)},
        "target",
        "but it is of shape (2, 4, 4). Scores (n, c, ...) with a target (n, ...) are for dl.AveragedLoss.",
    ),
    ({"target": changed(LABELS, 2)}, "target", "must hold only 0 or 1, but it is 2 at index [1, 2]"),
    ({"target": changed(LABELS.double(), 0.5)}, "target", "must hold only 0 or 1, but it is 0.5 at index [1, 2]"),
    ({"target": changed(LABELS, -1)}, "target", "must hold only 0 or 1, but it is -1 at index [1, 2]"),
    ({"target": changed(LABELS.double(), math.nan)}, "target", "must hold only 0 or 1, but it is nan"),
    ({"target": LABELS.tolist()}, "target", "must be a torch.Tensor, but it is a list"),
    # task
    ({"task": "average precison"}, "task", "must be a known name, or a task object, but it is 'average precison'"),
    ({"task": "acuracy"}, "task", "Did you mean 'accuracy'"),
    ({"task": "ndgc@10"}, "task", "Did you mean 'ndcg'"),
    ({"task": "ndcg@ten"}, "task", "must have a number after '@', but it is 'ndcg@ten'. For example 'ndcg@10'"),
    ({"task": "ap@3"}, "task", "takes no number: 'ap' stands alone, but it is 'ap@3'"),
    ({"task": "precision@200%"}, "task", "must have a number after '@' that 'precision' can take"),
    ({"task": "ndcg@1%"}, "task", "'ndcg@1%'. k must be a whole number of at least 1. Shares are for precision@1%"),
    ({"task": "chain@3"}, "task", "takes no number: 'chain' stands alone, but it is 'chain@3'"),
    ({"task": "average_precision"}, "task", "but it is 'average_precision'. Did you mean 'ap'?"),
    ({"task": "Average Precision"}, "task", "Did you mean 'ap'?"),
    ({"task": "roc-auc"}, "task", "Did you mean 'auc'?"),
    ({"task": "auprc"}, "task", "Did you mean 'ap'?"),
    ({"task": "p@10"}, "task", "Did you mean 'precision'?"),
    ({"task": "macro-f1"}, "task", 'use directloss.AveragedLoss("f1", average="macro")'),
    (
        {"task": torch.nn.BCEWithLogitsLoss()},
        "function",
        "where higher is better, but it is the loss BCEWithLogitsLoss()",
    ),
    ({"task": "matthews"}, "task", "Did you mean 'mcc'?"),
    ({"task": ""}, "task", "must be a known name, or a task object, but it is ''"),
    ({"task": Pick}, "task", "but it is the class Pick. Create an instance first"),
    ({"task": dl.Task}, "task", "but it is the class Task. Create an instance first"),
    (
        {"task": SimpleNamespace()},
        "task",
        "but it is a SimpleNamespace. It lacks predict, augmented, truth",
    ),
    ({"task": None}, "task", "but it is a NoneType"),
    # reduction
    ({"reduction": "avg"}, "reduction", "must be one of 'mean', 'sum', 'none', but it is 'avg'"),
    ({"reduction": "means"}, "reduction", "Did you mean 'mean'"),
    ({"reduction": None}, "reduction", "must be one of 'mean', 'sum', 'none', but it is None"),
    # mask
    (
        {"mask": MASK.long()},
        "mask",
        "must be boolean (False = ignored), but it is torch.int64. Call mask.bool()",
    ),
    ({"mask": MASK[0]}, "mask", "must have the shape of target, (2, 3), but it is of shape (3,)"),
    ({"mask": MASK.tolist()}, "mask", "must be a torch.Tensor, but it is a list"),
    # weight
    ({"weight": torch.ones(3)}, "weight", "must hold one weight per problem, shape (2,), or per item"),
    ({"weight": torch.tensor([1.0, -2.0])}, "weight", "must be finite and not negative, but it is as low as -2.0"),
    ({"weight": torch.tensor([1.0, math.nan])}, "weight", "must be finite and not negative"),
    ({"weight": torch.tensor([1.0, 1e60], dtype=torch.float64)}, "weight", "1e+30 at its largest, but it is 1e+60"),
    ({"weight": torch.tensor([3e38, 3e38])}, "weight", "but it is 3e+38. Divide by weight.max()."),
    ({"weight": torch.tensor([0.0, 1e-300], dtype=torch.float64)}, "weight", "but it is 1e-300."),
    ({"weight": [1.0, 2.0]}, "weight", "must be a torch.Tensor, but it is a list"),
    # dim
    ({"dim": 2}, "dim", "must name dimensions of scores, which has 2, but it is 2"),
    ({"dim": (0, 5)}, "dim", "must name dimensions of scores, which has 2, but it is (0, 5)"),
    ({"dim": "0"}, "dim", "must name dimensions of scores, which has 2, but it is 0"),
    ({"dim": (0, 0)}, "dim", "must name each dimension once, but it is (0, 0)"),
    ({"dim": (1, -1)}, "dim", "must name each dimension once, but it is (1, -1)"),
    ({"dim": ()}, "dim", "must name each dimension once, but it is ()"),
    ({"dim": 0, "task": "error"}, "dim", "must be left out"),
    ({"dim": 0, "target": LABELS[0]}, "target", "must have 2 dimensions like scores, but it is of shape (3,)"),
    ({"dim": 0, "mask": MASK.tolist()}, "mask", "must be a torch.Tensor, but it is a list"),
    ({"dim": 0, "mask": MASK[0]}, "mask", "must have 2 dimensions like scores, but it is of shape (3,)"),
]

WRONG_EPSILON: list[tuple[Any, str]] = [
    (0, "must be positive and finite, but it is 0"),
    (-1.0, "must be positive and finite, but it is -1.0"),
    (math.nan, "must be positive and finite, but it is nan"),
    (math.inf, "must be positive and finite, but it is inf"),
    ("big", "must be a positive number or \"auto\", but it is 'big'"),
    (True, "must be a positive number, but it is True"),
    ([1.0, 2.0], "must be a positive number, but it is [1.0, 2.0]"),
    (np.float32(-1), "must be positive and finite, but it is -1.0"),
    (np.bool_(True), "must be a positive number"),
    (1j, "must be a positive number, but it is 1j"),
    (torch.tensor([1.0, 0.0]), "must be positive and finite"),
    (torch.tensor([1.0, math.nan]), "must be positive and finite"),
    (torch.tensor([1, 2]), "must be a number or a floating-point tensor"),
]

WRONG_SIGN = [0, 2, -3, 0.5, "+", True]

# Whole calls whose task is not "ap".
WRONG_ELSEWHERE: list[tuple[Any, Any, str, dict[str, Any], str, str]] = [
    (SCORES, torch.tensor([0, 3]), "accuracy", {}, "target", "must hold class indices from 0 to 2, but it is 3"),
    (SCORES, torch.tensor([0, -2]), "accuracy", {}, "target", "must hold class indices from 0 to 2, but it is -2"),
    (SCORES, CLASSES.float(), "accuracy", {}, "target", "must hold integer class indices, but it is torch.float32"),
    (SCORES, LABELS, "accuracy", {}, "target", "but it is of shape (2, 3)"),
    (
        SCORES,
        CLASSES,
        "accuracy",
        {"mask": MASK},
        "mask",
        "must have the shape of the problems, (2,), but it is of shape (2, 3)",
    ),
    (SCORES, changed(LABELS, 3), "error", {}, "target", "must hold only 0 or 1, but it is 3"),
    (SCORES, LABELS[0], "error", {}, "target", "must have the shape of scores, (2, 3)"),
    (SCORES, changed(LABELS, 3), "f1", {}, "target", "must hold only 0 or 1, but it is 3"),
    (SCORES, LABELS[:, :2], "iou", {}, "target", "must have the shape of scores, (2, 3)"),
    (changed(SCORES, math.nan)[1], LABELS[1], "ap", {}, "scores", "must be finite, but it is nan at index [2] (1 of 3"),
    (
        changed(SCORES, math.nan)[None],
        LABELS[None],
        "ap",
        {},
        "scores",
        "must be finite, but it is nan at index [0, 1, 2]",
    ),
    (SCORES[1], changed(LABELS, 2)[1], "ap", {}, "target", "must hold only 0 or 1, but it is 2 at index [2]"),
    (changed(SCORES, math.nan), CLASSES, "accuracy", {}, "scores", "must be finite"),
    (changed(SCORES, math.nan), LABELS, "error", {}, "scores", "must be finite"),
    (changed(SCORES, math.nan), LABELS, "f1", {}, "scores", "must be finite"),
]


def refused(call: Callable[[], object], argument: str, message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        call()
    text = str(caught.value)
    assert text.startswith(argument), text
    assert message in text


def good_call(**changes: Any) -> dict[str, Any]:
    return {"scores": SCORES, "target": LABELS, "task": "ap", **changes}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_unchanged_call_is_good(loss: str) -> None:
    """Otherwise the rows below could be refused for another reason."""
    LOSSES[loss](**good_call(mask=MASK, weight=torch.ones(2), dim=1, reduction="none"))


def row_name(row: object) -> str | None:
    return ",".join(row) if isinstance(row, dict) else None


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("changes", "argument", "message"), WRONG_FOR_ALL, ids=row_name)
def test_wrong_argument_is_named(loss: str, changes: dict[str, Any], argument: str, message: str) -> None:
    refused(lambda: LOSSES[loss](**good_call(**changes)), argument, message)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("scores", "target", "task", "options", "argument", "message"), WRONG_ELSEWHERE)
def test_wrong_argument_of_other_tasks_is_named(
    loss: str, scores: Any, target: Any, task: str, options: dict[str, Any], argument: str, message: str
) -> None:
    refused(lambda: LOSSES[loss](scores, target, task, **options), argument, message)


@pytest.mark.parametrize(("epsilon", "message"), WRONG_EPSILON)
@pytest.mark.parametrize("loss", ["direct_loss", "hinge_loss"])
def test_wrong_epsilon_is_named(loss: str, epsilon: Any, message: str) -> None:
    refused(lambda: LOSSES[loss](**good_call(epsilon=epsilon)), "epsilon", message)


@pytest.mark.parametrize("loss", ["direct_loss", "hinge_loss"])
def test_epsilon_of_wrong_shape_is_named(loss: str) -> None:
    refused(
        lambda: LOSSES[loss](**good_call(epsilon=torch.ones(3))),
        "epsilon",
        "broadcast to (2,), but it is of shape (3,)",
    )


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "must return one number, but it is a NoneType"),
        ("0.5", "must return one number, but it is a str"),
        ((0.5, 0.5), "must return one number, but it is a tuple"),
        (torch.ones(3), "must return one number, but it is a tensor of shape (3,). Reduce it"),
        (torch.tensor(1j), "must return a real number"),
        (math.nan, "must return a finite number, but it is nan"),
    ],
)
def test_what_a_function_returns_is_checked(result: Any, message: str) -> None:
    refused(lambda: dl.direct_loss(SCORES, LABELS, lambda scores, target: result), "metric", message)


@pytest.mark.parametrize("sign", WRONG_SIGN)
def test_wrong_sign_is_named(sign: Any) -> None:
    message = f'must be +1 (away from worse), -1 (towards better), "both" or "auto", but it is {sign!r}'
    refused(lambda: dl.direct_loss(**good_call(sign=sign)), "sign", message)


WRONG_FLIPS: list[tuple[dict[str, Any], str, str]] = [
    ({"flips": -0.1}, "flips", "must be a share of wrong labels in [0, 0.5), or one for the negatives and one for the"),
    ({"flips": 20}, "flips", "but it is 20. It is a share: did you mean 0.2?"),
    ({"flips": 0.5}, "flips", "but it is 0.5. With half of the labels wrong, nothing can be learned."),
    ({"flips": math.nan}, "flips", "but it is nan"),
    ({"flips": True}, "flips", "but it is True"),
    ({"flips": "some"}, "flips", "but it is 'some'"),
    ({"flips": (0.1,)}, "flips", "but it is (0.1,)"),
    ({"flips": (0.1, 0.2, 0.3)}, "flips", "but it is (0.1, 0.2, 0.3)"),
    ({"flips": (0.4, 0.6)}, "flips", "but it is (0.4, 0.6). With half of the labels wrong"),
    ({"flips": (-0.1, 0.2)}, "flips", "but it is (-0.1, 0.2)"),
    ({"flips": 0.1, "sign": -1}, "sign", "must be left out together with flips, which Theorem 1 cannot correct for"),
    ({"flips": 0.1, "epsilon": 2.0}, "epsilon", "must be left out together with flips, which Theorem 1 cannot correct"),
    (
        {"flips": 0.1, "task": "ap"},
        "flips",
        "must be 0 for AveragePrecision(), but it is (0.1, 0.1). A metric of ranks",
    ),
    ({"flips": 0.1, "task": "graded_ndcg"}, "flips", "must be 0 for GradedNDCG()"),
    ({"flips": 0.1, "task": "accuracy", "target": CLASSES}, "flips", "must be 0 for Accuracy()"),
    ({"flips": 0.1, "task": "chain", "target": CLASSES}, "flips", "must be 0 for Chain"),
    ({"flips": 0.1, "task": Pick(), "target": CLASSES}, "flips", "must be 0 for Pick()"),
]


@pytest.mark.parametrize(("changes", "argument", "message"), WRONG_FLIPS, ids=row_name)
def test_wrong_flips_are_named(changes: dict[str, Any], argument: str, message: str) -> None:
    for loss in (dl.direct_loss, training, training_a_module):
        refused(lambda loss=loss: loss(**good_call(**{"task": "f1", **changes})), argument, message)


@pytest.mark.parametrize("warm_up", [0, 300])
def test_a_warm_up_is_refused_with_what_to_write_instead(warm_up: int) -> None:
    losses: list[Callable[..., Any]] = [dl.DirectLoss, dl.RetrievalLoss, dl.AveragedLoss]
    for make in losses:
        refused(lambda make=make: make("ap", warm_up=warm_up), "warm_up", f"but it is {warm_up}. ")
        with pytest.raises(dl.DirectLossError, match="set likelihood, the constant share"):
            make("ap", warm_up=warm_up)
        with pytest.raises(TypeError, match="unexpected keyword argument 'warm_upp'"):
            make("ap", warm_upp=warm_up)


# Modules refuse when they are built, not when they are called.
WRONG_MODULES: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any], str]] = [
    (dl.DirectLoss, ("acuracy",), {}, "task"),
    (dl.DirectLoss, (Pick,), {}, "task"),
    (dl.DirectLoss, ("ap",), {"epsilon": 0}, "epsilon"),
    (dl.DirectLoss, ("ap",), {"epsilon": "big"}, "epsilon"),
    (dl.DirectLoss, ("ap",), {"sign": 0}, "sign"),
    (dl.DirectLoss, ("ap",), {"noise": -1}, "noise"),
    (dl.DirectLoss, ("ap",), {"likelihood": -1}, "likelihood"),
    (dl.DirectLoss, ("ap",), {"flips": 0.1}, "flips"),
    (dl.DirectLoss, ("f1",), {"flips": 0.5}, "flips"),
    (dl.DirectLoss, ("f1",), {"flips": 0.1, "sign": 1}, "sign"),
    (dl.DirectLoss, ("ap",), {"reduction": "avg"}, "reduction"),
    (dl.DirectLoss, ("ap",), {"dim": "x"}, "dim"),
    (dl.DirectLoss, ("ap",), {"dim": []}, "dim"),
    (dl.DirectLoss, ("ap",), {"dim": 1.0}, "dim"),
    (dl.HingeLoss, ("acuracy",), {}, "task"),
    (dl.HingeLoss, ("ap",), {"epsilon": -1}, "epsilon"),
    (dl.HingeLoss, ("ap",), {"reduction": "avg"}, "reduction"),
    (dl.PerceptronLoss, ("acuracy",), {}, "task"),
    (dl.PerceptronLoss, ("ap",), {"reduction": "avg"}, "reduction"),
]


@pytest.mark.parametrize(("module", "arguments", "options", "argument"), WRONG_MODULES)
def test_modules_refuse_when_built(
    module: Callable[..., object], arguments: tuple[Any, ...], options: dict[str, Any], argument: str
) -> None:
    refused(lambda: module(*arguments, **options), argument, "must")


@pytest.mark.parametrize("loss", LOSSES)
def test_padding_may_hold_anything(loss: str) -> None:
    """What stands behind the mask is never looked at: no false alarm, and nothing leaks."""
    mask = changed(MASK, False)
    spoiled = changed(SCORES, math.nan).requires_grad_()
    found = LOSSES[loss](spoiled, changed(LABELS, 7), "ap", mask=mask)
    wanted = LOSSES[loss](SCORES, LABELS, "ap", mask=mask)
    torch.testing.assert_close(found.detach(), wanted)
    if found.requires_grad:
        assert bool(torch.autograd.grad(found, spoiled)[0].isfinite().all())


def test_value_checks_can_be_switched_off() -> None:
    """Then shapes and types are still checked, but values only where that is free."""
    dl.direct_loss(changed(SCORES, math.inf), CLASSES, Pick(), check_values=False)
    refused(lambda: dl.direct_loss(changed(SCORES, math.inf), CLASSES, Pick()), "scores", "must be finite")
    refused(
        lambda: dl.direct_loss(SCORES, LABELS[0], "ap", check_values=False), "target", "must have the shape of scores"
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["ap", "ndcg@2", "auc"])
def test_rankings_are_not_looked_at_with_checks_off(loss: str, name: str) -> None:
    LOSSES[loss](changed(SCORES, math.nan), LABELS, name, check_values=False)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_largest_unsigned_label_is_no_padding(loss: str) -> None:
    """In uint8, 255 == -1."""
    target = torch.tensor([0, 255], dtype=torch.uint8)
    refused(lambda: LOSSES[loss](SCORES[None], target[None], "chain"), "target", "255")


NAMES: list[tuple[tuple[Any, ...], str]] = [
    (("ap", Pick, ""), "name must not be taken, but it is 'ap', which is directloss.tasks.ranking.AveragePrecision"),
    (("x@y", Pick, ""), "name must consist of lowercase letters, digits and _, but it is 'x@y'"),
    ((3, Pick, ""), "name must consist of lowercase letters, digits and _, but it is 3"),
    (("own", 3, ""), "factory must be a class, or a function that returns a task, but it is a int"),
]


@pytest.mark.parametrize(("arguments", "message"), NAMES)
def test_wrong_names(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(dl.DirectLossError, match=re.escape(message)):
        dl.tasks.register(*arguments)


def test_a_foreign_task_may_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_meant", dict(registry._meant))
    for _ in range(2):  # as in a notebook
        dl.tasks.register("pick", Pick, "one of several")
    torch.testing.assert_close(dl.direct_loss(SCORES, CLASSES, "pick"), dl.direct_loss(SCORES, CLASSES, Pick()))


def test_errors_inside_of_a_factory_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(k: int) -> object:
        raise TypeError(f"{k} is not what I want")

    monkeypatch.setitem(registry._entries, "own", registry.Entry(factory, "a task", None))
    with pytest.raises(TypeError, match="3 is not what I want"):
        dl.tasks.get("own@3")


IMAGES = torch.randn(2, 3, 4, 5)
"""Scores (n, c, h, w)."""


@pytest.mark.parametrize("ignored", [-100, 255])
@pytest.mark.parametrize(
    ("name", "scores"), [("ap", IMAGES[0, 0, 0]), ("f1", IMAGES[0, 0, 0]), ("accuracy", IMAGES.movedim(1, -1))]
)
def test_labels_that_other_losses_ignore_are_sent_to_the_mask(name: str, scores: Tensor, ignored: int) -> None:
    target = torch.ones(scores.shape[:-1] if name == "accuracy" else scores.shape, dtype=torch.long)
    target.view(-1)[0], target.view(-1)[1] = ignored, 0
    refused(lambda: dl.direct_loss(scores, target, name), "target", f"with mask=target != {ignored}.")
    assert dl.direct_loss(scores, target, name, mask=target != ignored) >= 0


@pytest.mark.parametrize(("name", "shape"), [("error", (6,)), ("accuracy", (6, 3)), ("ap", (6,)), ("f1", (6,))])
def test_what_has_no_weight_is_not_looked_at(name: str, shape: tuple[int, ...]) -> None:
    scores, target, weight = torch.randn(shape), torch.arange(6) % 2, torch.ones(6)
    wanted = dl.direct_loss(scores[1:], target[1:], name)
    scores[0], target[0], weight[0] = math.nan, 77, 0
    torch.testing.assert_close(dl.direct_loss(scores, target, name, weight=weight), wanted)


@pytest.mark.parametrize("name", ["accuracy", "topk@2"])
def test_classes_in_the_second_dimension_are_sent_to_dim(name: str) -> None:
    target = torch.zeros(2, 4, 5, dtype=torch.long)
    refused(lambda: dl.direct_loss(IMAGES, target, name), "target", "Classes come last: pass dim=1 to the loss")
    found = dl.direct_loss(IMAGES, target, name, dim=1)
    assert torch.equal(found, dl.direct_loss(IMAGES.movedim(1, -1), target, name))


def test_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="sign must be"):
        dl.direct_loss(SCORES, LABELS, "ap", sign=0)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [((8,), r"squeeze\(-1\) scores\.$"), ((8, 1), r"squeeze\(-1\) scores and target, or pass dim=0\.$")],
)
def test_the_hint_about_a_column_of_scores_fits_the_target(shape: tuple[int, ...], hint: str) -> None:
    with pytest.raises(dl.DirectLossError, match=hint):
        dl.direct_loss(torch.arange(8.0)[:, None], (torch.arange(8) % 2).reshape(shape), "ap")


@pytest.mark.parametrize("make", [dl.DirectLoss, dl.UniLoss])
def test_a_column_of_scores_is_not_compared_with_every_label(make: type[torch.nn.Module]) -> None:
    def profit(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return ((scores > 0) & (target == 1)).float().mean()

    refused(lambda: make(profit)(torch.randn(6, 1), torch.arange(6) % 2), "scores", "Call scores.squeeze(-1) first")


@pytest.mark.parametrize("scores", [torch.randn(6), torch.randn(6, 1)])
def test_accuracy_of_yes_or_no_is_called_error(scores: torch.Tensor) -> None:
    target = (torch.arange(6) % 2).reshape(scores.shape[:1])
    if scores.dim() == 1:
        refused(lambda: dl.DirectLoss("accuracy")(scores, target), "target", 'use "error"')
    else:
        refused(lambda: dl.DirectLoss("accuracy")(scores, target), "target", "class indices from 0 to 0")


@pytest.mark.parametrize("name", ["iou", "dice"])
def test_rows_of_pixels_are_noticed(name: str) -> None:
    images, truth = torch.randn(2, 1, 4, 4), torch.randint(2, (2, 1, 4, 4))
    with pytest.warns(dl.DirectLossWarning, match=r"pass dim=\(-2, -1\)"):
        dl.DirectLoss(name)(images, truth)
    assert dl.DirectLoss(name, dim=(-2, -1), reduction="none")(images, truth).shape == (2, 1)
