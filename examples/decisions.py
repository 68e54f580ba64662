"""Train for the decision, not the prediction: a linear model that cannot represent the costs still finds cheap paths.

The cost of each cell of a map is a polynomial of five features, as in PyEPO's benchmark. Squared error spends the
model's few parameters on predicting all costs well on average; direct loss spends them on the decision. Prints the
regret of both on unseen maps, and draws one map with its paths and the regret over training into decisions.svg.

python examples/decisions.py
"""

from pathlib import Path

import torch
from torch import Tensor, nn

import directloss as dl

SIZE, STEPS, EVERY = 8, 900, 50
task = dl.tasks.GridPath(SIZE, SIZE, "monotone", loss="regret")


def draw(maps: int, mix: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw features (maps, 5) and true costs (maps, h, w), which grow with the sixth power."""
    x = torch.randn(maps, 5, generator=generator)
    costs = ((x @ mix.T / 5**0.5 + 3) / 3.5) ** 6 * (0.5 + torch.rand(maps, SIZE * SIZE, generator=generator))
    return x, costs.unflatten(1, (SIZE, SIZE))


def regret(model: nn.Module, x: Tensor, costs: Tensor) -> float:
    """Regret of the chosen paths, in per cent of the cost of the best ones."""
    with torch.no_grad():
        return 100 * float(dl.metrics.normalised_regret(task.predict(-model(x)), task.truth(costs), costs))


def main() -> None:
    """Train with each loss and compare."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    mix = (torch.rand(SIZE * SIZE, 5, generator=generator) < 0.5).float()
    (x, costs), (new_x, new_costs) = draw(500, mix, generator), draw(500, mix, generator)
    methods = {
        "squared error": lambda scores, target: nn.functional.mse_loss(-scores, target),
        "direct loss": dl.DirectLoss(task, generator=generator),  # all defaults
    }
    curves: dict[str, list[float]] = {}
    models: dict[str, nn.Module] = {}
    for name, loss_fn in methods.items():
        torch.manual_seed(0)
        models[name] = nn.Sequential(nn.Linear(5, SIZE * SIZE), nn.Unflatten(1, (SIZE, SIZE)))
        optimizer = torch.optim.Adam(models[name].parameters(), lr=0.01)
        curves[name] = []
        for step in range(STEPS):
            if step % EVERY == 0:
                curves[name].append(regret(models[name], new_x, new_costs))
            rows = torch.randint(len(x), (32,), generator=generator)
            optimizer.zero_grad()
            loss_fn(-models[name](x[rows]), costs[rows]).backward()
            optimizer.step()
        curves[name].append(regret(models[name], new_x, new_costs))
        print(f"{name:14} regret {curves[name][-1]:.1f} %")
    picture(models, curves, new_x, new_costs)


def picture(models: dict[str, nn.Module], curves: dict[str, list[float]], x: Tensor, costs: Tensor) -> None:
    """Draw true costs, predicted costs with the chosen paths, and regret over training."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("To draw the figure: pip install matplotlib")
        return
    with torch.no_grad():
        predicted = {name: model(x) for name, model in models.items()}
    spent = {name: (task.predict(-table) * costs).sum((1, 2)) for name, table in predicted.items()}
    one = int((spent["squared error"] - spent["direct loss"]).argsort()[-len(x) // 10])  # a map with a clear difference
    figure = Figure((7.2, 2.4), layout="constrained")
    places = figure.subplots(1, 4)
    shown = {"true costs": costs[one], **{name: table[one] for name, table in predicted.items()}}
    for place, (name, table) in zip(places, shown.items(), strict=False):
        path = task.predict(-table)
        place.imshow(table.numpy(), cmap="Greys")
        rows, columns = path.nonzero(as_tuple=True)
        place.plot(columns.numpy(), rows.numpy(), "-", color="#0b5fa5", linewidth=2.5)
        place.set_title(f"{name}\npath costs {float((path * costs[one]).sum()):.1f}", fontsize=9)
        place.set_xticks([])
        place.set_yticks([])
    for name, colour in (("squared error", "#4a525c"), ("direct loss", "#0b5fa5")):
        steps = [EVERY * place for place in range(len(curves[name]))]
        places[3].plot(steps, curves[name], label=name, color=colour)
    places[3].set_title("regret on\nunseen maps, %", fontsize=9)
    places[3].set_ylim(0, 2.5 * curves["squared error"][-1])
    places[3].set_xlabel("training step", fontsize=9)
    places[3].legend(fontsize=8, frameon=False)
    figure.savefig(Path("decisions.svg"))


if __name__ == "__main__":
    main()
