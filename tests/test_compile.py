"""Inside torch.compile and torch.export: one graph, the results of eager mode, and no second compilation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import directloss as dl

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
NAMES = ["ap", "auc", "ndcg@2", "graded_ndcg", "recall_at_fpr@0.5", "f1", "mcc", "accuracy", "topk@2", "error"]
"""One of each family: compilation is slow."""


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


def result(loss: Callable[..., Tensor], scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient of the first draw."""
    torch.manual_seed(0)
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target)
    (value * torch.arange(1.0, 1 + value.numel()).reshape(value.shape)).sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_one_graph(name: str) -> None:
    """With noise and the random numbers of eager mode."""
    loss, (scores, target) = dl.DirectLoss(name), problem(name)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with dl.kernels.use("tensor"):
        expected = result(loss, scores, target)
    torch.testing.assert_close(result(compiled, scores, target), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", ["ndcg@2", "mcc", "topk@2"])
def test_one_graph_takes_any_number_of_lists(name: str) -> None:
    loss, (scores, target) = dl.DirectLoss(name), problem(name)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for times in (1, 2):
            batch, labels = torch.cat([scores] * times), torch.cat([target] * times)
            with dl.kernels.use("tensor"):
                expected = result(loss, batch, labels)
            torch.testing.assert_close(result(compiled, batch, labels), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("kind", [dl.DirectLoss, dl.HingeLoss, dl.PerceptronLoss])
@pytest.mark.parametrize("name", ["chain", "ap"])
def test_what_needs_inference_runs_beside_the_graph(kind: type[nn.Module], name: str) -> None:
    options = {"epsilon": 1.0} if kind is dl.DirectLoss else {}
    loss, (scores, target) = kind(name, **options), problem(name)
    torch.testing.assert_close(
        result(torch.compile(loss, backend="aot_eager"), scores, target), result(loss, scores, target)
    )


OPTIONS: list[dict[str, Any]] = [
    {"reduction": "none"},
    {"reduction": "sum", "dim": 0},
    {"mask": RANKED.roll(1) + RANKED > 0},
    {"weight": torch.tensor([1.0, 0.0, 2.0])},
    {"noise": 1.0, "samples": 3, "likelihood": 0},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["ap", "f1"])
def test_functions_with_their_options(name: str, options: dict[str, Any]) -> None:
    loss = partial(dl.direct_loss, task=name, **options)
    compiled = torch.compile(lambda s, t: loss(s, t), fullgraph=True, backend="aot_eager")
    with dl.kernels.use("tensor"):
        expected = result(loss, LISTS, RANKED)
    torch.testing.assert_close(result(compiled, LISTS, RANKED), expected)


def test_a_generator_of_the_loss_runs_beside_the_graph() -> None:
    losses = [dl.DirectLoss("ap", generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    compiled = torch.compile(losses[0], backend="aot_eager")
    torch.testing.assert_close(result(compiled, LISTS, RANKED), result(losses[1], LISTS, RANKED))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_is_compiled_once(backend: str) -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    model, loss_fn = nn.Linear(4, 1), dl.DirectLoss("ap")
    step = torch.compile(lambda: loss_fn(model(inputs).squeeze(-1), labels), fullgraph=True, backend=backend)
    gradients = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            model.zero_grad()
            step().backward()
            assert model.weight.grad is not None
            gradients.append(model.weight.grad.clone())
    assert not torch.equal(gradients[1], gradients[2]), "each step has noise of its own"
    with torch.no_grad():
        assert float(step()) == pytest.approx(float(dl.direct_loss(model(inputs).squeeze(-1), labels, "ap")))


@pytest.mark.slow
def test_the_default_compiler() -> None:
    """Its random numbers are its own, so only the value and the likelihood's gradient can be compared."""
    loss = dl.DirectLoss("f1", noise=1e-4)  # decisions far from 0 do not move
    scores = 10 * LISTS + 0.5
    torch.testing.assert_close(
        result(torch.compile(loss, fullgraph=True), scores, RANKED), result(loss, scores, RANKED)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    loss = dl.DirectLoss("ap")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with dl.kernels.use("tensor"):
        expected = result(loss, LISTS.to(dtype), RANKED)
    found = result(compiled, LISTS.to(dtype), RANKED)
    assert found[1].dtype == dtype
    torch.testing.assert_close(found, expected)


class Step(nn.Module):
    """A model with its loss."""

    def __init__(self) -> None:
        super().__init__()
        # With "auto" the number of draws would depend on the number of rows.
        self.model, self.loss = nn.Linear(4, 1), dl.DirectLoss("ap", samples=2)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(self.model(inputs).squeeze(-1), labels)
        return loss


LOADED = """
import sys, torch
step, (inputs, labels, expected) = torch.export.load(sys.argv[1]).module(), torch.load(sys.argv[2])
torch.manual_seed(1)
loss = step(inputs[:12], labels[:12])
found = (loss.detach(), *torch.autograd.grad(loss, [p for p in step.parameters() if p.dim() == 2]))
torch.testing.assert_close(found, expected)
assert "directloss" not in sys.modules
"""


def test_a_training_step_is_exported_and_loaded_without_the_library(tmp_path: Path) -> None:
    torch.manual_seed(0)
    step = Step()
    inputs, labels = torch.randn(20, 4), torch.randint(2, (20,))
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(step, (inputs, labels), dynamic_shapes=({0: rows}, {0: rows}))
    torch.export.save(exported, tmp_path / "step.pt2")
    torch.manual_seed(1)
    with dl.kernels.use("tensor"):
        loss = step(inputs[:12], labels[:12])
    expected = (loss.detach(), *torch.autograd.grad(loss, [step.model.weight]))
    torch.save((inputs, labels, expected), tmp_path / "expected.pt")
    paths = [str(tmp_path / name) for name in ("step.pt2", "expected.pt")]
    done = subprocess.run([sys.executable, "-c", LOADED, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FIRST = """
import torch, directloss as dl
loss = lambda s, t: dl.direct_loss(s, t, "ap", likelihood=0)
print(float(torch.compile(loss, fullgraph=True, backend="eager")(torch.tensor([2.0, 1.0]), torch.tensor([0, 1]))))
"""


def test_a_graph_may_be_the_first_to_name_a_task() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0.5\n", 0), done.stderr


def test_wrong_shapes_raise_the_usual_error() -> None:
    compiled = torch.compile(dl.DirectLoss("ap"), backend="eager")
    with pytest.raises(dl.DirectLossError, match="target must have the shape of scores"):
        compiled(LISTS, RANKED[:, :3])


@pytest.mark.parametrize("name", ["ap", "f1", "error"])
def test_a_program_takes_any_number_of_problems(name: str) -> None:
    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss = dl.DirectLoss(name, samples=2)

        def forward(self, scores: Tensor, target: Tensor) -> Tensor:
            loss: Tensor = self.loss(scores, target)
            return loss

    draw = torch.Generator().manual_seed(0)
    scores, target = torch.randn(6, 9, generator=draw), torch.randint(2, (6, 9), generator=draw)
    dynamic = {0: torch.export.Dim.DYNAMIC}
    given = scores[:4].clone().requires_grad_(), target[:4]
    exported = torch.export.export(Step(), given, dynamic_shapes=(dynamic, dynamic))
    torch.testing.assert_close(exported.module()(scores, target), dl.direct_loss(scores, target, name))
