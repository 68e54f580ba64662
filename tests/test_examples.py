"""Every file in examples/ runs as it stands, and shows what it is there to show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def shortest_path(lines: list[str]) -> None:
    """On clean paths direct loss and hinge are near each other; on wrong ones the direct loss is far ahead."""
    rows = [re.fullmatch(r"(clean|30 % wrong) +(\S+) +([\d.]+)% +([\d.]+)%", line) for line in lines[1:]]
    off = {(row[1], row[2]): float(row[3]) for row in rows if row}
    assert len(off) == len(rows) == 6
    assert off["clean", "direct"] < 15 > off["clean", "hinge"]
    assert off["30 % wrong", "direct"] < 0.8 * off["30 % wrong", "hinge"] < 0.8 * off["30 % wrong", "cross-entropy"]


def decisions(lines: list[str]) -> None:
    """The direct loss decides better than squared error, and the picture is drawn."""
    squared, direct = numbers(lines)
    assert direct < 0.9 * squared
    assert Path("decisions.svg").exists()


def distributed(lines: list[str]) -> None:
    """The loss falls; `test_distributed_example_under_torchrun` compares with several processes."""
    assert [line.split(",")[0] for line in lines] == ["step 20", "step 40", "step 60"]
    values = losses(lines)
    assert values[-1] < values[0] < 1


def numbers(lines: list[str]) -> list[float]:
    """The last number of each line."""
    return [float(re.findall(r"[\d.]+", line)[-1].rstrip(".")) for line in lines]


def sklearn_tools(lines: list[str]) -> None:
    """Level with logistic regression."""
    logistic, direct, f1, ndcg = numbers(lines)
    assert direct > logistic - 0.002
    assert f1 > 0.96
    assert ndcg > 0.85


def lightning_ap(lines: list[str]) -> None:
    """The AP of the validation set rises."""
    found = re.fullmatch(r"validation AP: ([\d.]+) before, ([\d.]+) after training", lines[-1])
    assert found
    assert float(found[2]) > float(found[1]) + 0.2


def skorch_net(lines: list[str]) -> None:
    """Far above the 0.1 of a ranking by chance."""
    assert numbers(lines)[0] > 0.7


def accelerate_loop(lines: list[str]) -> None:
    """Far above the best without a network: 0.25, calling all of them positive."""
    assert numbers(lines)[0] > 0.4


def boosting_ap(lines: list[str]) -> None:
    """Rounds on the metric help on wrong labels."""
    alone, then = numbers(lines)
    assert then > alone + 0.01


def trainer_ap(lines: list[str]) -> None:
    """As with Lightning; from 0.14, the share of positives, to nearly all of it."""
    lightning_ap(lines)


def sentence_ranking(lines: list[str]) -> None:
    """Both encoders learn to rank."""
    rows = [re.findall(r"0\.\d+|1\.0+", line) for line in lines if "encoder" in line]
    assert [float(after) > float(before) + 0.05 for before, after in rows] == [True, True]


def table(lines: list[str]) -> dict[str, list[float]]:
    """The numbers of each row, by the name in front of them."""
    rows = [re.fullmatch(r"(\D+?) +(\d.*)", line) for line in lines]
    return {row[1]: [float(number) for number in re.findall(r"\d\.\d+", row[2])] for row in rows if row}


def segmentation(lines: list[str]) -> None:
    """Every loss learns more than the background, the table says who leads, and there is a picture."""
    found = table(lines[1:4])
    assert list(found) == ["cross-entropy", "IoU of the batch", "IoU per image"]
    assert all(0.4 < overall < each < 1 for overall, each, _ in found.values())  # a class that is not there counts 1
    check_leads(lines[4:], [found["IoU of the batch"][0], found["IoU per image"][1]], found["cross-entropy"])
    assert_picture("segmentation.png")


def dense_detection(lines: list[str]) -> None:
    """Every loss is above a random ranking, the table says who leads, and there is a picture."""
    found = table(lines[1:4])
    assert list(found) == ["cross-entropy", "focal loss", "AP"]
    assert all(mean > 0.05 for mean, *_ in found.values())
    check_leads(lines[4:], found["AP"][:1], [max(found["cross-entropy"][0], found["focal loss"][0])])
    assert_picture("dense_detection.png")


def check_leads(lines: list[str], ours: list[float], others: list[float]) -> None:
    """Each line ends with ours minus the other, as the table has them."""
    wanted = [mine - other for mine, other in zip(ours, others, strict=False)]
    assert [float(line.split()[-1]) for line in lines] == pytest.approx(wanted, abs=0.0016)


def assert_picture(name: str) -> None:
    assert Path(name).read_bytes().startswith(b"\x89PNG")


def losses(lines: list[str]) -> list[float]:
    return [float(line.rpartition("= ")[2]) for line in lines]


SHOWS: dict[str, Callable[[list[str]], None]] = {
    "accelerate_loop": accelerate_loop,
    "boosting_ap": boosting_ap,
    "decisions": decisions,
    "dense_detection": dense_detection,
    "distributed": distributed,
    "lightning_ap": lightning_ap,
    "segmentation": segmentation,
    "sentence_ranking": sentence_ranking,
    "shortest_path": shortest_path,
    "sklearn_tools": sklearn_tools,
    "skorch_net": skorch_net,
    "trainer_ap": trainer_ap,
}
NEEDS = {"boosting_ap": "lightgbm", "sentence_ranking": "sentence_transformers", "trainer_ap": "transformers"}
"""What not every installation has."""
ARGUMENTS = {"dense_detection": ["--quick"], "segmentation": ["--quick"]}


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # Lightning's own, about the newest PyTorch
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason=f"{NEEDS[path.stem]} is not installed")
    monkeypatch.chdir(tmp_path)  # what an example writes must not land in the project
    monkeypatch.setattr(sys, "argv", [str(path), *ARGUMENTS.get(path.stem, [])])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert path.stem in SHOWS, "a new example: say what it has to show"
    SHOWS[path.stem](capsys.readouterr().out.splitlines())


def test_distributed_example_under_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes with half a batch each print what one with the whole batch prints."""
    (path,) = (path for path in EXAMPLES if path.stem == "distributed")
    runpy.run_path(str(path), run_name="__main__")
    alone = capsys.readouterr().out.splitlines()
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all("from 2 processes" in line for line in lines)
    assert losses(lines) == pytest.approx(losses(alone), abs=0.01)


def test_there_are_examples() -> None:
    assert EXAMPLES
