"""What tests/test_distributed.py lets several processes do together. Each check runs on every process."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import directloss as dl
from directloss.distributed import gather_items

Check = Callable[[], None]
CHECKS: dict[str, Check] = {}
CUTS = {2: [0, 4, 11], 3: [0, 4, 4, 11]}
"""Where the 11 entries of a batch are cut: shards of different sizes, one of them empty."""
LABELS = torch.tensor([0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1])
"""The first process has no positives."""


def run_all(rank: int, size: int, folder: str) -> None:
    """The life of one process: all checks, then a file with what went wrong in each."""
    torch.set_num_threads(1)
    wait = timedelta(seconds=60)  # a process that waits for one that has failed ends with an error
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=wait)
    outcome = {}
    for name, check in CHECKS.items():
        try:
            check()
            outcome[name] = ""
        except Exception:
            outcome[name] = traceback.format_exc()
    torch.save(outcome, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def check(*rows: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a check, once for each row of arguments, of which the first is the name."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for row in rows or [("",)]:
            CHECKS[f"{function.__name__} {row[0]}".strip()] = functools.partial(function, *row[1:])
        return function

    return register


def my_part(whole: Tensor) -> Tensor:
    """This process's entries of a batch."""
    cuts, rank = CUTS[dist.get_world_size()], dist.get_rank()
    return whole[cuts[rank] : cuts[rank + 1]]


def network(outputs: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, 4, generator=torch.Generator().manual_seed(2)).double()


def draw(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


def scores_of(model: nn.Module, x: Tensor) -> Tensor:
    scores: Tensor = model(x)
    return scores.squeeze(-1) if scores.shape[-1] == 1 else scores


def assert_same(found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def gradients(model: nn.Module) -> list[Tensor]:
    return [part.grad for part in model.parameters() if part.grad is not None]


def same_everywhere(value: object) -> bool:
    told: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(told, value)
    return all(one == told[0] for one in told)


# ---------------------------------------------------------------------- value and gradient

OF_CLASSES = torch.arange(11) % 3
MANY_LABELS = torch.stack([LABELS, LABELS.flip(0), OF_CLASSES == 1], 1).long()
LISTS = (torch.arange(55).reshape(11, 5) % 3 == 0).long()


def f_score(scores: Tensor, target: Tensor) -> Tensor:
    """A metric of the user's own."""
    found = scores > 0
    return 2 * (found * target).sum() / (found.sum() + target.sum())


def drawn(kind: Callable[..., nn.Module], *args: Any, **kwargs: Any) -> Callable[..., nn.Module]:
    """A new loss each time, with a generator that every process would begin differently."""

    def make(**more: Any) -> nn.Module:
        seed = dist.get_rank() if more else 0  # the reference has the seed of the first process
        return kind(*args, **kwargs, **more, generator=torch.Generator().manual_seed(seed))

    return make


uniloss = functools.partial(drawn, dl.UniLoss)
direct = functools.partial(drawn, dl.DirectLoss)
retrieval = functools.partial(drawn, dl.RetrievalLoss, scale=2.0)


def loss(kind: type[nn.Module], *args: Any, **kwargs: Any) -> Callable[..., nn.Module]:
    return functools.partial(kind, *args, **kwargs)


@check(
    ("ap", direct("ap"), LABELS),
    ("ap towards better", direct("ap", sign=-1, epsilon=0.7), LABELS),
    ("ap without noise", direct("ap", epsilon="auto"), LABELS),
    ("ap with a mask", direct("ap"), LABELS, draw(11) > 0.3),
    ("ap of columns", direct("ap", dim=0), MANY_LABELS, draw(11, 3) > 0.3, draw(3)),
    ("ap of columns, dim=-2", direct("ap", dim=-2, reduction="sum"), MANY_LABELS),
    ("ap of all", direct("ap", dim=(0, 1)), MANY_LABELS),
    ("ap of lists", direct("ap"), LISTS, draw(11, 5) > 0.1, draw(11)),
    ("ap of lists, not reduced", direct("ap", reduction="none"), LISTS),
    ("auc with weights of items", direct("auc"), LABELS, None, draw(11)),
    ("f1", direct("f1"), LABELS),
    ("error", direct("error"), LABELS, draw(11) > 0.3, draw(11)),
    ("accuracy", direct("accuracy"), OF_CLASSES, draw(11) > 0.3, draw(11)),
    ("classes by the mean F1", drawn(dl.AveragedLoss, "f1"), OF_CLASSES),
    ("classes by weight", drawn(dl.AveragedLoss, "f1", average="weighted"), OF_CLASSES),
    ("hinge", loss(dl.HingeLoss, "ap"), LABELS),
    ("hinge of lists", loss(dl.HingeLoss, "ndcg@3", epsilon="auto"), LISTS),
    ("perceptron", loss(dl.PerceptronLoss, "ap"), LABELS),
    ("retrieval", retrieval("ap"), OF_CLASSES),
    ("uniloss ap", uniloss("ap"), LABELS),
    ("uniloss ap, interpolated", uniloss("ap", value="interpolated"), LABELS),
    ("uniloss ap with a mask", uniloss("ap"), LABELS, draw(11) > 0.3),
    ("uniloss accuracy", uniloss("accuracy", fraction=0.5), OF_CLASSES),
    ("uniloss of one's own", uniloss(f_score), LABELS),
    ("uniloss of lists", uniloss(f_score, batch_dims=1), LISTS, None, draw(11)),
    ("uniloss of columns", uniloss("ap", dim=0), MANY_LABELS, draw(11, 3) > 0.3, draw(3)),
    ("uniloss of lists, not reduced", uniloss("ap", reduction="none"), LISTS),
)
def equals_one_process(
    make: Callable[..., nn.Module], y: Tensor, mask: Tensor | None = None, weight: Tensor | None = None
) -> None:
    """Value and gradients of all parameters under DDP are those of one process with the whole batch."""
    several = 3 if y is OF_CLASSES or y is MANY_LABELS else 1
    x = inputs(11, 5) if y is LISTS else inputs(11)
    more = {} if weight is None else {"weight": weight}
    alone = network(several)
    expected = make()(scores_of(alone, x), y, mask, **more)
    expected.sum().backward()

    model = DistributedDataParallel(network(several))
    if weight is not None and len(weight) == 11:  # others belong to problems that all processes share
        more = {"weight": my_part(weight)}
    found = make(gather=True)(scores_of(model, my_part(x)), my_part(y), None if mask is None else my_part(mask), **more)
    found.sum().backward()
    assert_same([found], [expected])
    assert any(bool(part.any()) for part in gradients(alone))
    assert_same(gradients(model), gradients(alone))


@check()
def equals_one_process_under_fsdp() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    x, alone, model = inputs(11), network(1), network(1)
    direct("ap")()(scores_of(alone, x), LABELS).backward()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    direct("ap")(gather=True)(scores_of(model, my_part(x)), my_part(LABELS)).backward()
    whole = [part.full_tensor() for part in gradients(model)]
    assert len(whole) == 4
    assert_same(whole, gradients(alone))


@check(
    ("ap", direct("ap"), LABELS),
    ("retrieval with memory", retrieval("ap", memory=13), OF_CLASSES),
)
def equals_one_process_over_some_steps(make: Callable[..., nn.Module], y: Tensor) -> None:
    """Weights stay together, step after step, with batches of other sizes, new noise and the same memory."""
    outputs = 3 if y is OF_CLASSES else 1
    x, alone, model = inputs(11), network(outputs), DistributedDataParallel(network(outputs))
    for train, loss_fn in ((alone, make()), (model, make(gather=True))):
        optimizer = torch.optim.SGD(train.parameters(), 0.1)
        for kept in (11, 9, 7):
            mine = (x[:kept], y[:kept]) if train is alone else (my_part(x[:kept]), my_part(y[:kept]))
            optimizer.zero_grad()
            loss_fn(scores_of(train, mine[0]), mine[1]).backward()
            optimizer.step()
    assert_same(model.parameters(), alone.parameters())


@check()
def half_precision() -> None:
    whole = inputs(11).sum(-1).bfloat16().requires_grad_()
    expected = direct("ap")()(whole, LABELS)
    expected.backward()
    mine = my_part(whole.detach()).requires_grad_()
    found = direct("ap")(gather=True)(mine, my_part(LABELS))
    found.backward()
    assert found.item() == expected.item()
    assert mine.grad is not None
    assert whole.grad is not None
    assert torch.equal(mine.grad, my_part(whole.grad) * dist.get_world_size())


@check()
def full_batch_step_in_chunks() -> None:
    """Each process goes through its own items in chunks; the gradient is that of all items."""
    x, alone, model = inputs(12), network(1), network(1)
    y = torch.cat([LABELS, torch.ones(1, dtype=torch.long)])
    flat = nn.Flatten(0)
    direct("ap")()(flat(alone(x)), y).backward()
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * 12 // size, (rank + 1) * 12 // size)
    dl.full_batch_step(nn.Sequential(model, flat), (x[mine], y[mine]), direct("ap")(gather=True), chunk=3)
    for part in gradients(model):
        dist.all_reduce(part)
    assert_same([part / size for part in gradients(model)], gradients(alone))


@check()
def loss_of_ones_own() -> None:
    whole = inputs(11).sum(-1)
    mine = my_part(whole).requires_grad_()
    scores, target, mask, weight = gather_items(mine, my_part(LABELS), weight=my_part(whole.abs()))
    assert torch.equal(scores, whole)
    assert torch.equal(target, LABELS)
    assert mask is None
    assert weight is not None
    assert torch.equal(weight, whole.abs())
    (scores**2).sum().backward()
    assert mine.grad is not None
    assert torch.equal(mine.grad, 2 * mine.detach() * dist.get_world_size())


@check()
def without_gradients() -> None:
    """Evaluation takes part as well; nothing waits for a backward pass."""
    expected = dl.DirectLoss("ap")(inputs(11).sum(-1), LABELS)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            scores = my_part(inputs(11).sum(-1))
            assert_same([dl.DirectLoss("ap", gather=True).eval()(scores, my_part(LABELS))], [expected])
            found = dl.UniLoss("ap", gather=True, value="interpolated").eval()(scores, my_part(LABELS))
            assert not found.requires_grad
            assert same_everywhere(found.item())


@check()
def group_of_some() -> None:
    """A process group in place of True: the others are not asked."""
    some = dist.new_group([0, dist.get_world_size() - 1])
    if dist.get_rank() in (0, dist.get_world_size() - 1):
        scores = torch.tensor([1.0, 0.0]) if dist.get_rank() == 0 else torch.tensor([2.0])
        target = torch.tensor([0, 1]) if dist.get_rank() == 0 else torch.tensor([1])
        found = dl.DirectLoss("ap", gather=some)(scores, target)
        assert found.item() == dl.DirectLoss("ap")(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0, 1, 1])).item()
    else:
        assert "must be True, False or a process group" in error_of(lambda: dl.DirectLoss("ap", gather=some))


@check(("direct loss", loss(dl.DirectLoss, "ap")), ("uniloss", loss(dl.UniLoss, "ap")))
def random_numbers(make: Callable[..., nn.Module]) -> None:
    """The first process draws what it would draw alone; the generators of the others are left as they were."""
    scores = inputs(11).sum(-1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    make(gather=True, generator=generator)(my_part(scores).requires_grad_(), my_part(LABELS)).backward()
    alone = torch.Generator().manual_seed(dist.get_rank())
    if dist.get_rank() == 0:
        make(generator=alone)(scores.clone().requires_grad_(), LABELS).backward()
    assert torch.equal(generator.get_state(), alone.get_state())
    # The global generator, too.
    mine, whole = my_part(scores).requires_grad_(), scores.clone().requires_grad_()
    torch.manual_seed(dist.get_rank())
    make(gather=True)(mine, my_part(LABELS)).backward()
    assert not same_everywhere(torch.rand(1).item())
    torch.manual_seed(0)
    make()(whole, LABELS).backward()
    assert mine.grad is not None
    assert whole.grad is not None
    assert whole.grad.any()
    assert_same([mine.grad], [my_part(whole.grad) * dist.get_world_size()])


# ---------------------------------------------------------------------- errors


def error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except dl.DirectLossError as error:
        return str(error)
    return ""


def on_last(there: Any, elsewhere: Any) -> Any:
    """Something that only the last process has."""
    return there if dist.get_rank() == dist.get_world_size() - 1 else elsewhere


Arguments = tuple[Any, ...]
FINE, NAN = torch.tensor([1.0, 0.0]), torch.tensor([0.0, float("nan")])
YES_NO = torch.tensor([1, 0])


@check(
    ("NaN", lambda: (on_last(NAN, FINE), YES_NO), "scores must be finite, but it is nan at index [{last}]"),
    ("label", lambda: (FINE, on_last(YES_NO + 1, YES_NO)), "target must hold only 0 or 1"),
    ("number of labels", lambda: (FINE, on_last(YES_NO[:1], YES_NO)), "On process {rank}: target must have as many"),
    ("number of labels, joined right", lambda: (FINE, on_last(torch.zeros(3), torch.zeros(1))), "On process 0: target"),
    ("list", lambda: (on_last([1.0, 0.0], FINE), YES_NO), "On process {rank}: scores must be a torch.Tensor"),
    ("no labels", lambda: (FINE, on_last(None, YES_NO)), "On process {rank}: target must be a torch.Tensor"),
    ("number", lambda: (torch.tensor(1.0), torch.tensor(1)), "On process 0: scores must have a first dimension"),
    ("mask of one", lambda: (FINE, YES_NO, on_last(YES_NO > 0, None)), "mask must have the same type and shape on all"),
    ("types", lambda: (on_last(FINE.double(), FINE), YES_NO), "torch.float32 of shape (n) on process 0 and torch.fl"),
    (
        "shapes",
        lambda: (on_last(FINE[None], FINE), on_last(YES_NO[None], YES_NO)),
        "scores must have the same type and",
    ),
    ("whole numbers", lambda: (on_last(YES_NO, YES_NO), YES_NO), "scores must be floating point"),
    ("nothing at all", lambda: (FINE[:0], YES_NO[:0]), "scores must not be empty"),
    ("weight of all", lambda: (FINE, YES_NO, None, torch.tensor(on_last(2.0, 1.0))), "weight must be the same on all"),
    ("weight", lambda: (FINE, YES_NO, None, on_last(-FINE, FINE)), "weight"),
)
def same_error_everywhere(make: Callable[[], Arguments], message: str) -> None:
    """Wrong input on one process: all raise the same, and are in step afterwards."""
    losses = [dl.DirectLoss("ap", gather=True), dl.HingeLoss("ap", gather=True), dl.UniLoss("ap", gather=True)]
    for loss_fn in losses:
        found = error_of(lambda loss_fn=loss_fn: loss_fn(*make()))  # type: ignore[misc]
        size = dist.get_world_size()
        assert message.format(rank=size - 1, last=2 * size - 1) in found, found
        assert same_everywhere(found), found


class Broken(dl.tasks.AveragePrecision):
    """A task of the user's own, with a fault that shows on the last process alone."""

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        on_last(broken, float)()

    def fused(self, *args: Any, **options: Any) -> None:
        return None

    def expected(self, *args: Any, **options: Any) -> Any:
        on_last(broken, float)()
        return super().expected(*args, **options)


def broken() -> None:
    raise KeyError("the table is missing here")


def broken_metric(scores: Tensor, target: Tensor) -> Tensor:
    on_last(broken, float)()
    return f_score(scores, target)


@check(
    ("task", loss(dl.DirectLoss, Broken())),
    ("task of the hinge", loss(dl.HingeLoss, Broken())),
    ("metric", loss(dl.UniLoss, broken_metric)),
)
def a_fault_on_one_process_stops_all(make: Callable[..., nn.Module]) -> None:
    """Nobody waits for a process that has stopped, and all are in step afterwards."""
    last, raised = dist.get_world_size() - 1, ""
    try:
        make(gather=True)(FINE.clone().requires_grad_(), YES_NO)
    except (KeyError, dl.DirectLossError) as error:
        raised = str(error)
    assert "the table is missing here" in raised, raised
    assert raised.startswith(f"The loss failed on process {last}: ") is (dist.get_rank() != last), raised
    assert same_everywhere(0)


@check(
    ("tasks", lambda: dl.DirectLoss(on_last("ndcg", "ap"), gather=True), "DirectLoss(NDCG(), "),
    ("noise", lambda: dl.DirectLoss("ap", noise=on_last(2.0, 1.0), gather=True), "noise=2.0"),
    ("dimensions", lambda: dl.DirectLoss("ap", dim=on_last(-1, 0), gather=True), "dim=-1"),
    ("dimensions of a hinge", lambda: dl.HingeLoss("ap", dim=on_last(-1, 0), gather=True), "dim=-1"),
    ("losses", lambda: on_last(dl.HingeLoss, dl.DirectLoss)("ap", gather=True), "HingeLoss("),
    ("metrics", lambda: dl.UniLoss(on_last("ap", "auc"), gather=True), "UniLoss("),
)
def different_losses_are_refused(make: Callable[[], nn.Module], other: str) -> None:
    loss_fn = make()
    found = error_of(lambda: loss_fn(FINE.clone().requires_grad_(), YES_NO))
    assert found.startswith("loss must be the same on all processes"), found
    assert other in found.split(" on process 0 and ")[1], found
    assert same_everywhere(found)


@check(
    ("chain", "chain", torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), {}),
    ("classes first", "accuracy", torch.zeros(3, 3), torch.zeros(3, dtype=torch.long), {"dim": 0}),
)
def no_dimension_to_join(task: str, scores: Tensor, target: Tensor, options: dict[str, Any]) -> None:
    chosen = dl.tasks.Chain(torch.zeros(3, 3)) if task == "chain" else task
    found = error_of(lambda: dl.DirectLoss(chosen, gather=True, **options)(scores, target))
    assert "must have a first dimension of problems" in found, found


@check()
def transforms_are_refused() -> None:
    for kind in (dl.DirectLoss, dl.UniLoss):
        loss_fn = kind("ap", gather=True)
        found = error_of(lambda loss_fn=loss_fn: torch.func.grad(lambda s: loss_fn(s, YES_NO))(FINE))  # type: ignore[misc]
        assert "gather must be False inside the transforms" in found, found
