"""Inside torch.compile and torch.export: one graph, the results of eager mode, and no second compilation."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from directloss._gradient import loss_operator
from tests.toys import Pick

pytestmark = [
    pytest.mark.filterwarnings("ignore::directloss.DirectLossWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),  # the compiler warns about itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]

LISTS = torch.tensor([[0.3, -0.2, 0.9, 0.1], [0.5, 0.4, -0.3, 0.2], [0.0, 0.1, -0.6, 0.4]])
RANKED = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 1, 0]])
CLASSES = torch.tensor([1, 3, 0])
TABLE = torch.tensor([[[0.3, -0.2, 0.9], [0.5, 0.4, -0.3], [0.0, 0.1, -0.6]]]).repeat(2, 1, 1)
PATHS = torch.tensor([[0, 2, 1], [1, 2, 0]])
KINDS: list[type[nn.Module]] = [dl.DirectLoss, dl.HingeLoss, dl.PerceptronLoss]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def problem(name: str) -> tuple[Tensor, Tensor]:
    task = dl.tasks.get(name)
    if task.event_dims == 2:
        return TABLE, PATHS
    return (LISTS, CLASSES) if task.target_dims < task.event_dims else (LISTS, RANKED)


def results(losses: list[Any], scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Values of all losses, and the gradient of their sum."""
    torch.manual_seed(0)
    leaf = scores.clone().requires_grad_()
    values = torch.stack([loss(leaf, target) for loss in losses])
    values.sum().backward()
    assert leaf.grad is not None
    return values.detach(), leaf.grad


@pytest.mark.parametrize("name", dl.tasks.names())
def test_every_task_and_loss_in_one_graph(name: str) -> None:
    """Three losses of each task, one after the other in one graph, with noise; then another length of the batch."""
    number = {"fbeta": "@2", "topk": "@2"}.get(name, "")
    losses: list[Any] = [kind(name + number) for kind in KINDS]
    scores, target = problem(name + number)

    def step(scores: Tensor, target: Tensor) -> Tensor:
        return torch.stack([loss(scores, target) for loss in losses])

    compiled = torch.compile(step, fullgraph=True, backend="eager", dynamic=True)
    for batch in (scores, torch.cat([scores, scores + 0.1])):
        labels = torch.cat([target] * (len(batch) // len(target)))
        torch.manual_seed(0)
        leaf = batch.clone().requires_grad_()
        values = compiled(leaf, labels)
        values.sum().backward()
        torch.testing.assert_close(
            (values.detach(), leaf.grad), results([fresh(loss) for loss in losses], batch, labels)
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def fresh(loss: nn.Module) -> nn.Module:
    """The same loss at the first step of its warm-up."""
    if isinstance(loss, dl.DirectLoss):
        return dl.DirectLoss(loss.task)
    return loss


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "none"},
    {"reduction": "sum", "dim": 0},
    {"mask": RANKED.roll(1) + RANKED > 0},
    {"weight": torch.tensor([1.0, 0.0, 2.0])},
    {"epsilon": torch.tensor([0.5, 1.0, 2.0])},
    {"epsilon": 2.0, "sign": "both", "samples": 3},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_functions_with_their_options(options: dict[str, Any]) -> None:
    """Draws are made by the operator, so that a graph has the random numbers of eager mode."""
    loss = partial(dl.direct_loss, task="ap", **options)
    compiled = torch.compile(lambda s, t: loss(s, t), fullgraph=True, backend="aot_eager")
    found = []
    for call in (compiled, loss):
        torch.manual_seed(0)
        leaf = LISTS.clone().requires_grad_()
        value = call(leaf, RANKED)
        (value * torch.arange(1.0, 1 + value.numel()).reshape(value.shape)).sum().backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*found)


def train(model: nn.Module, loss_fn: Callable[..., Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    loss: Tensor = loss_fn(model(inputs).squeeze(-1), labels)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_is_compiled_once(backend: str) -> None:
    """Over the end of the warm-up, in both modes; counted as in eager mode."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    model, loss_fn = nn.Linear(4, 1), dl.DirectLoss("ap", warm_up=2)
    step = torch.compile(lambda: loss_fn(model(inputs).squeeze(-1), labels), fullgraph=True, backend=backend)
    gradients = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(4):
            model.zero_grad()
            step().backward()
            assert model.weight.grad is not None
            gradients.append(model.weight.grad.clone())
    assert loss_fn.steps == 2
    assert torch.equal(gradients[0], gradients[1]), "the likelihood has no noise"
    assert not torch.equal(gradients[1], gradients[2])
    assert not torch.equal(gradients[2], gradients[3]), "each step has noise of its own"
    with torch.no_grad():
        assert float(step()) == pytest.approx(float(dl.direct_loss(model(inputs).squeeze(-1), labels, "ap")))


@pytest.mark.slow
def test_the_default_compiler() -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    model, twin = nn.Linear(4, 1), nn.Linear(4, 1)
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(dl.DirectLoss("ap", warm_up=0), fullgraph=True)
    values = []
    for network, loss_fn in ((model, compiled), (twin, dl.DirectLoss("ap", warm_up=0))):
        torch.manual_seed(1)
        values.append(train(network, loss_fn, inputs, labels))
    torch.testing.assert_close(*values)
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_types(kind: torch.dtype) -> None:
    loss = partial(dl.direct_loss, task="ap", noise=0, epsilon=1.0)
    compiled = torch.compile(lambda s, t: loss(s, t), fullgraph=True, backend="aot_eager")
    found = []
    for call in (compiled, loss):
        leaf = LISTS.to(kind).requires_grad_()
        value = call(leaf, RANKED)
        (1024 * value).backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype == kind
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*found)


class Learning(Pick):
    """A user's own task with a parameter."""

    def __init__(self) -> None:
        self.bias = nn.Parameter(torch.tensor([0.1, 0.0, -0.1, 0.2]))

    def predict(self, scores: Tensor) -> Tensor:
        return super().predict(scores + self.bias.detach())

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return super().augmented(scores + self.bias.detach(), target, epsilon, sign)

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return super().score(scores + self.bias, output)


@pytest.mark.parametrize("module", [True, False])
def test_what_a_task_learns_has_its_gradient(module: bool) -> None:
    transitions = nn.Parameter(torch.tensor([[0.1, 0.0, 0.2], [0.0, -0.1, 0.0], [0.3, 0.0, 0.0]]))
    for task, part, scores, target in (
        (dl.tasks.Chain(transitions), transitions, TABLE, PATHS),
        ((own := Learning()), own.bias, LISTS, CLASSES),
    ):
        call = dl.DirectLoss(task, warm_up=0) if module else partial(dl.direct_loss, task=task)
        found = []
        for loss in (torch.compile(lambda s, t, call=call: call(s, t), fullgraph=True, backend="aot_eager"), call):
            torch.manual_seed(0)
            part.grad = None
            leaf = scores.clone().requires_grad_()
            loss(leaf, target).backward()
            found.append((leaf.grad, part.grad))
        torch.testing.assert_close(*found)
        assert found[0][1].any()


def test_a_training_step_is_exported() -> None:
    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = nn.Linear(4, 1), dl.DirectLoss("ap", warm_up=0)

        def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
            loss: Tensor = self.loss(self.model(inputs).squeeze(-1), labels)
            return loss

    torch.manual_seed(0)
    step = Step()
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(step, (inputs, labels), dynamic_shapes=({0: rows}, {0: rows})).module()
    for end in (20, 12):
        found = []
        for call in (exported, step):
            torch.manual_seed(1)
            parameters = [p for p in call.parameters() if p.dim() == 2]
            loss = call(inputs[:end], labels[:end])
            found.append((loss.detach(), *torch.autograd.grad(loss, parameters)))
        torch.testing.assert_close(*found)


def test_a_graph_outlives_no_loss() -> None:
    loss_fn = dl.DirectLoss("ap")
    key = loss_fn.key
    assert loss_operator(LISTS, RANKED, None, None, None, [], key, True, True)[0].shape == ()
    del loss_fn
    gc.collect()
    with pytest.raises(dl.DirectLossError, match="no longer exists"):
        loss_operator(LISTS, RANKED, None, None, None, [], key, True, True)


@pytest.mark.parametrize("name", ["ap", "f1", "accuracy", "chain"])
def test_the_operator_keeps_the_rules_of_operators(name: str) -> None:
    scores, target = problem(name)
    for reduction in ("mean", "none"):
        loss_fn = dl.DirectLoss(name, noise=0, warm_up=0, reduction=reduction)
        for gradient in (True, False):
            leaf = scores.clone().requires_grad_(gradient)
            torch.library.opcheck(loss_operator, (leaf, target, None, None, None, [], loss_fn.key, gradient, False))


def test_wrong_shapes_raise_the_usual_error() -> None:
    compiled = torch.compile(dl.DirectLoss("ap"), fullgraph=True, backend="eager")
    with pytest.raises(dl.DirectLossError, match="target must have the shape of scores"):
        compiled(LISTS, RANKED[:, :3])
