"""Small devkits in exactly VOC's layout: JPEG files, Annotations, ImageSets/Main and ImageSets/Action."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from directloss_repro.data.voc import ACTIONS
from PIL import Image

ANNOTATION = """\
<annotation>
	<folder>{folder}</folder>
	<filename>{name}.jpg</filename>
	<source>
		<database>The VOC2008 Database</database>
		<annotation>PASCAL VOC2008</annotation>
		<image>flickr</image>
	</source>
	<size>
		<width>{width}</width>
		<height>{height}</height>
		<depth>3</depth>
	</size>
	<segmented>0</segmented>
{objects}</annotation>
"""

OBJECT = """\
	<object>
		<name>{name}</name>
		<pose>Unspecified</pose>
		<truncated>0</truncated>
		<difficult>{difficult}</difficult>
		<bndbox>
			<xmin>{xmin}</xmin>
			<ymin>{ymin}</ymin>
			<xmax>{xmax}</xmax>
			<ymax>{ymax}</ymax>
		</bndbox>
		<part>
			<name>head</name>
			<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>
		</part>
{actions}	</object>
"""


@dataclass
class Item:
    """One object: the box as VOC writes it, counted from 1 with the last pixel included."""

    name: str
    box: tuple[float, float, float, float]
    difficult: int = 0
    actions: tuple[str, ...] = ()


@dataclass
class Scene:
    name: str
    items: list[Item]
    width: int = 80
    height: int = 60
    colours: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def write_scene(devkit: Path, scene: Scene, seed: int = 0) -> None:
    draw = np.random.default_rng(seed)
    pixels = draw.integers(90, 110, (scene.height, scene.width, 3), dtype=np.uint8)
    for item in scene.items:
        left, top, right, bottom = (int(value) for value in item.box)
        colour = scene.colours.get(item.name, (200, 30, 30))
        pixels[max(top - 1, 0) : max(bottom, 0), max(left - 1, 0) : max(right, 0)] = colour
    Image.fromarray(pixels).save(devkit / "JPEGImages" / f"{scene.name}.jpg", quality=95)
    objects = "".join(annotated(item) for item in scene.items)
    text = ANNOTATION.format(
        folder=devkit.name, name=scene.name, width=scene.width, height=scene.height, objects=objects
    )
    (devkit / "Annotations" / f"{scene.name}.xml").write_text(text)


def annotated(item: Item) -> str:
    xmin, ymin, xmax, ymax = item.box
    actions = ""
    if item.name == "person":
        marks = "".join(f"\t\t\t<{name}>{int(name in item.actions)}</{name}>\n" for name in (*ACTIONS, "other"))
        actions = f"\t\t<actions>\n{marks}\t\t</actions>\n"
    return OBJECT.format(
        name=item.name, difficult=item.difficult, xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax, actions=actions
    )


def write_devkit(root: Path, sets: dict[str, list[Scene]], year: int = 2012) -> Path:
    """A devkit with the given image sets; every class that occurs gets its lists."""
    devkit = root / "VOCdevkit" / f"VOC{year}"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main", "ImageSets/Action"):
        (devkit / folder).mkdir(parents=True)
    classes = sorted({item.name for scenes in sets.values() for scene in scenes for item in scene.items})
    for seed, scene in enumerate(scene for scenes in sets.values() for scene in scenes):
        write_scene(devkit, scene, seed)
    for name, part in {**sets, "trainval": [scene for scenes in sets.values() for scene in scenes]}.items():
        write_lists(devkit, name, part, classes)
    return devkit


def write_lists(devkit: Path, name: str, scenes: list[Scene], classes: list[str]) -> None:
    main, action = devkit / "ImageSets" / "Main", devkit / "ImageSets" / "Action"
    (main / f"{name}.txt").write_text("".join(f"{scene.name}\n" for scene in scenes))
    for of in classes:
        lines = []
        for scene in scenes:
            found = [item.difficult for item in scene.items if item.name == of]
            label = -1 if not found else (0 if all(found) else 1)
            lines.append(f"{scene.name} {label:2d}\n")
        (main / f"{of}_{name}.txt").write_text("".join(lines))
    persons = [
        (scene.name, number, item)
        for scene in scenes
        for number, item in enumerate(scene.items, 1)
        if item.name == "person"
    ]
    images = dict.fromkeys(image for image, _, _ in persons)
    (action / f"{name}.txt").write_text("".join(f"{image}\n" for image in images))
    for of in ACTIONS:
        lines = [f"{image}  {number} {1 if of in item.actions else -1:2d}\n" for image, number, item in persons]
        (action / f"{of}_{name}.txt").write_text("".join(lines))
