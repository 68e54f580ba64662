"""``directloss data``: data sets made on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from directloss.cli.app import Interrupted, app

data = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Make data sets for the experiments.")
app.add_typer(data, name="data")

EXAMPLE = "Example: directloss data make-voc --out scenes --data-root mnist --images 300 --classes digit0,digit3,digit8"


@data.command("make-voc", epilog=EXAMPLE)
def make_voc(
    out: Annotated[Path, typer.Option(help="Where to put the folder VOCdevkit.")],
    data_root: Annotated[Path, typer.Option(help="Folder with the four idx files of MNIST or Fashion-MNIST.")],
    images: Annotated[int, typer.Option(help="How many scenes; half of them for training.")] = 200,
    classes: Annotated[
        str | None, typer.Option(help="Comma-separated class names.", show_default="the first four")
    ] = None,
    clothes: Annotated[bool, typer.Option("--clothes", help="The files are Fashion-MNIST's.")] = False,
    backgrounds: Annotated[
        Path | None, typer.Option(help="Folder with photographs.", show_default="scikit-learn's two photographs")
    ] = None,
    size: Annotated[str, typer.Option(help="Width and height of a scene.")] = "400x300",
    objects: Annotated[int, typer.Option(help="Objects in a scene, at most.")] = 4,
    smallest: Annotated[int, typer.Option(help="Side of the smallest object, in pixels.")] = 48,
    largest: Annotated[int, typer.Option(help="Side of the largest object, in pixels.")] = 140,
    seed: Annotated[int, typer.Option(help="Another seed gives other scenes.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Finish a devkit that was begun.")] = False,
) -> None:
    """Compose scenes from real images and write them as a PASCAL VOC devkit.

    Objects of MNIST or Fashion-MNIST stand on pieces of photographs in several sizes and colours. The devkit has
    images, annotations and lists as VOC2012's, so that everything that reads VOC reads it.
    """
    from rich.progress import Progress

    from directloss_repro.data.skipping import Skipped
    from directloss_repro.data.voc import making as maker

    names = maker.CLOTHES if clothes else maker.DIGITS
    chosen = names[:4] if classes is None else tuple(word.strip() for word in classes.split(",") if word.strip())
    width, height = _size(size)
    making = maker.Making(images, chosen, names, width, height, objects, smallest, largest, seed)
    maker.check_making(making)
    skipped, console = Skipped(), Console(highlight=False, soft_wrap=True)
    photos = maker.sample_backgrounds() if backgrounds is None else maker.folder_backgrounds(backgrounds, skipped)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("scenes", total=images)
            devkit = maker.make_voc(
                out, data_root, making, photos, resume, lambda done, _total: bar.update(task, completed=done)
            )
    except KeyboardInterrupt:
        raise Interrupted("Stopped. What is made is kept; the same command with --resume goes on.") from None
    if skipped.reasons:
        console.print(skipped.summary("photograph"), markup=False)
    console.print(f"{images} scenes in {devkit}", markup=False)


def _size(text: str) -> tuple[int, int]:
    from directloss._checks import fail

    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit() and 16 <= int(width) <= 5000 and 16 <= int(height) <= 5000):
        fail("--size", "must be two numbers from 16 to 5000 such as 400x300", repr(text))
    return int(width), int(height)
