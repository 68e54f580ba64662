"""Reading a devkit, whole and broken."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from directloss_repro.data.voc import ACTIONS, Devkit, Skipped, find_devkit, read_annotation, read_people

from directloss import DirectLossError
from tests.repro.voc.devkits import Item, Scene, write_devkit


def scenes(count: int = 8) -> list[Scene]:
    """Two persons and a dog in each; the first person jumps in every second image, all others walk."""
    return [
        Scene(
            f"2010_{k:06d}",
            [
                Item("dog", (3, 3, 12, 14)),
                Item("person", (10, 5, 30, 50), actions=("jumping",) if k % 2 else ("walking",)),
                Item("person", (40.5, 5, 79.25, 60), difficult=1, actions=("walking",)),
            ],
        )
        for k in range(count)
    ]


@pytest.fixture
def devkit(tmp_path: Path) -> Devkit:
    every = scenes()
    return find_devkit(write_devkit(tmp_path, {"train": every[:5], "val": every[5:]}))


def test_annotation(devkit: Devkit) -> None:
    found = devkit.annotation("2010_000001")
    assert (found.width, found.height) == (80, 60)
    dog, first, second = found.things
    assert dog.name == "dog"
    assert not dog.actions
    assert first.box == (9, 4, 30, 50)  # counted from 0, measured at edges
    assert second.box == (39.5, 4, 79.25, 60)
    assert (first.difficult, second.difficult) == (False, True)
    assert [name for name, on in first.actions.items() if on] == ["jumping"]
    assert found.notes == []
    assert devkit.image("2010_000001", found).shape == (60, 80, 3)


@pytest.mark.parametrize("up", [0, 1, 2])
def test_devkit_is_found_from_above(devkit: Devkit, up: int) -> None:
    root = [devkit.path, *devkit.path.parents][up]
    assert find_devkit(root).path == devkit.path


def test_lists(devkit: Devkit) -> None:
    assert devkit.image_set("val") == ["2010_000005", "2010_000006", "2010_000007"]
    assert devkit.image_labels("dog", "val") == {"2010_000005": 1, "2010_000006": 1, "2010_000007": 1}
    assert devkit.action_labels("jumping", "val")["2010_000005", 2] == 1
    assert devkit.action_labels("jumping", "val")["2010_000005", 3] == -1


def test_people_and_labels(devkit: Devkit) -> None:
    persons, labels = read_people(devkit, Skipped())
    assert labels.shape == (len(persons), len(ACTIONS)) == (16, 10)
    jumping = labels[:, ACTIONS.index("jumping")]
    assert [persons[k].number for k in (jumping == 1).nonzero()[:, 0].tolist()] == [2] * 4
    assert persons[2].box == (9, 4, 30, 50)


def test_unknown_labels_are_zero(devkit: Devkit) -> None:
    path = devkit.list_path("Action", "jumping_trainval")
    lines = path.read_text().replace("2010_000000  2 -1", "2010_000000  2  0").splitlines()
    path.write_text("\n".join(line for line in lines if "2010_000001" not in line))
    jumping = read_people(devkit, Skipped())[1][:, ACTIONS.index("jumping")]
    assert jumping[:5].tolist() == [0, -1, 0, 0, -1]


def test_annotations_without_actions_are_counted_in_one_sentence(devkit: Devkit) -> None:
    for name in ("2010_000000", "2010_000003"):
        path = devkit.annotation_path(name)
        path.write_text(re.sub(r"<actions>.*?</actions>", "", path.read_text(), flags=re.DOTALL))
    skipped = Skipped()
    assert len(read_people(devkit, skipped)[0]) == 12
    assert len(skipped.reasons) == 1
    assert "2010_000000.xml and others have no <actions>" in skipped.reasons[0]
    assert "4 of 16 persons are left out" in skipped.reasons[0]


REAL_LISTS = {
    "Main/trainval": "2010_006088\n2010_006089\n",
    "Main/horse_train": "2008_000008  1\n2008_000015 -1\n2008_000019 -1\n",
    **{f"Action/{action}_trainval": "2010_006088  1 -1\n" for action in ACTIONS},
    "Action/takingphoto_trainval": "2010_006088  1  1\n2010_006090  1 -1\n",
}
REAL_ANNOTATION = """\
<annotation>
	<filename>2010_006088.jpg</filename>
	<folder>VOC2010</folder>
	<object>
		<name>person</name>
		<bndbox>
			<xmax>308</xmax>
			<xmin>1</xmin>
			<ymax>333</ymax>
			<ymin>22</ymin>
		</bndbox>
		<difficult>0</difficult>
		<pose>Unspecified</pose>
		<actions>
			<phoning>0</phoning>
			<takingphoto>1</takingphoto>
			<other>0</other>
		</actions>
		<point>
			<x>143</x>
			<y>194</y>
		</point>
	</object>
	<segmented>0</segmented>
	<size>
		<depth>3</depth>
		<height>333</height>
		<width>500</width>
	</size>
</annotation>
"""


def test_lines_of_the_published_files(tmp_path: Path) -> None:
    """A few lines of the devkit as it was published. The folder in an annotation is the year it was made in."""
    root = tmp_path / "VOC2012"
    for name, text in REAL_LISTS.items():
        path = root / "ImageSets" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in ("Annotations", "JPEGImages"):
        (root / folder).mkdir()
    (root / "Annotations" / "2010_006088.xml").write_text(REAL_ANNOTATION)
    devkit, skipped = find_devkit(tmp_path), Skipped()
    assert devkit.image_set("trainval")[-1] == "2010_006089"
    assert devkit.image_labels("horse", "train") == {"2008_000008": 1, "2008_000015": -1, "2008_000019": -1}
    persons, labels = read_people(devkit, skipped)
    assert persons[0].box == (0, 21, 308, 333)
    assert labels[0, ACTIONS.index("takingphoto")] == 1
    assert "2010_006090.xml must be an XML file, but it is missing" in skipped.reasons[0]


def edit(old: str, new: str) -> Callable[[Devkit], None]:
    """Change the annotation of the first image."""

    def change(devkit: Devkit) -> None:
        path = devkit.annotation_path("2010_000000")
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


LEFT_TO_RIGHT = "<xmin>{}</xmin>\n\t\t\t<ymin>5</ymin>\n\t\t\t<xmax>{}<"
LAUGHS = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
BOMB = (
    f'<?xml version="1.0"?><!DOCTYPE annotation [<!ENTITY a0 "ha">{LAUGHS}]>'
    "<annotation><folder>&a9;</folder></annotation>"
)


def write(text: str | bytes) -> Callable[[Devkit], None]:
    data = text if isinstance(text, bytes) else text.encode()
    return lambda devkit: devkit.annotation_path("2010_000000").write_bytes(data) and None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.annotation_path("2010_000000").unlink(), "must be an XML file, but it is missing"),
        (write(""), "must be readable XML, but it is not"),
        (write("<annotation>"), "must be readable XML, but it is not"),
        (write("<annotation></annotation>"), "must have at least one usable <object>"),
        (write("<html></html>"), "must be an annotation of VOC, but it is XML with the root <html>"),
        (write(BOMB), "without a document type declaration"),
        (write(BOMB.replace('version="1.0"', 'version="1.0" encoding="utf-16"').encode("utf-16")), "document type"),
        (write('<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>'), "document type"),
        (edit("<width>80", "<width>many"), "must have a number in <width>, but it is 'many'"),
    ],
    ids=["missing", "empty", "cut", "no object", "html", "laughs", "utf-16", "external", "size"],
)
def test_a_bad_annotation_does_not_lose_the_others(
    devkit: Devkit, spoil: Callable[[Devkit], None], message: str
) -> None:
    spoil(devkit)
    skipped = Skipped()
    assert len(read_people(devkit, skipped)[0]) == 14
    assert len(skipped.reasons) == 1
    assert "2010_000000.xml" in skipped.reasons[0]
    assert re.search(message, skipped.reasons[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<xmin>10<", "<xmin>31<",
         r"object 2 \(person\) is left out: its box has no area .*\(xmin 31, ymin 5, xmax 30, ymax 50\)"),
        (LEFT_TO_RIGHT.format(10, 30), LEFT_TO_RIGHT.format(90, 99),
         r"object 2 \(person\) is left out: its box lies outside the image of 80 x 60 pixels \(xmin 90"),
        ("<ymax>50<", "<ymax>nan<", "must have a sensible number in <ymax>"),
        ("<ymax>50<", "<ymax><", "must have a number in <ymax>"),
    ],
)  # fmt: skip
def test_a_bad_box_does_not_lose_the_other_objects(devkit: Devkit, old: str, new: str, message: str) -> None:
    edit(old, new)(devkit)
    skipped = Skipped()
    persons, _ = read_people(devkit, skipped)
    assert len(persons) == 15
    assert (persons[0].image, persons[0].number) == ("2010_000000", 3)
    with pytest.raises(DirectLossError, match=message):
        raise DirectLossError(skipped.notes[0])
    assert "2010_000000.xml" in skipped.notes[0]
    assert "2010_000000.xml" in skipped.reasons[0]


def test_a_box_over_the_border_is_cut(devkit: Devkit) -> None:
    edit("<ymax>50<", "<ymax>75<")(devkit)
    skipped = Skipped()
    assert read_people(devkit, skipped)[0][0].box == (9, 4, 30, 60)
    assert "extends beyond the image of 80 x 60 pixels" in skipped.notes[0]
    assert not skipped.reasons


def test_one_pixel_over_the_border_is_vocs_own_habit(devkit: Devkit) -> None:
    edit("<ymax>50<", "<ymax>61<")(devkit)
    found = devkit.annotation("2010_000000")
    assert found.things[1].box[3] == 60
    assert not found.notes


@pytest.mark.parametrize(
    ("number", "message"), [(9, "must have the object 9"), (1, "must have a person as object 1.* but it is a dog")]
)
def test_lists_and_annotations_that_disagree(devkit: Devkit, number: int, message: str) -> None:
    for action in ACTIONS:
        text = f"2010_000000 {number} -1\n2010_000001 2 -1\n"
        devkit.list_path("Action", f"{action}_trainval").write_text(text)
    skipped = Skipped()
    assert len(read_people(devkit, skipped)[0]) == 1
    assert re.search(message, skipped.reasons[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "2010_000000\n",
            "the number of an object, from 1, and 1, 0 or -1 in each line, but it is '2010_000000'",
        ),
        ("2010_000000 0 1\n", "but it is '2010_000000 0 1' in line 1"),
        ("../../secret 2 1\n", "but it is '../../secret 2 1' in line 1"),
        ("2010_000000 2 yes\n", "but it is '2010_000000 2 yes' in line 1"),
        ("", "must name at least one image, but it is empty"),
        (None, r"jumping_trainval\.txt must be a list of the devkit, but it is missing"),
    ],
)
def test_bad_lists(devkit: Devkit, text: str | None, message: str) -> None:
    path = devkit.list_path("Action", "jumping_trainval")
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(DirectLossError, match=message):
        read_people(devkit, Skipped())


def test_nothing_left_is_an_error(devkit: Devkit) -> None:
    shutil.rmtree(devkit.path / "Annotations")
    with pytest.raises(DirectLossError, match=r"at least one usable file.*2010_000000\.xml must be an XML file"):
        read_people(devkit, Skipped())


def test_other_years(tmp_path: Path) -> None:
    old = write_devkit(tmp_path, {"train": scenes(2)}, year=2007)
    with pytest.raises(DirectLossError, match="must hold VOC2012, but it is the devkit VOC2007"):
        find_devkit(old)
    with pytest.raises(DirectLossError, match="must be VOCdevkit/VOC2012 or a folder that holds it"):
        find_devkit(tmp_path)


def test_folders_that_are_no_devkit(tmp_path: Path) -> None:
    with pytest.raises(DirectLossError, match="must be VOCdevkit/VOC2012 or a folder that holds it"):
        find_devkit(tmp_path)
    with pytest.raises(DirectLossError, match="must be the folder of a VOC devkit, but it is missing"):
        find_devkit(tmp_path / "none")
    (tmp_path / "VOC2012" / "Annotations").mkdir(parents=True)
    with pytest.raises(DirectLossError, match="without ImageSets and JPEGImages"):
        find_devkit(tmp_path)


def test_annotation_without_size(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
    path.write_text(f"<annotation><object><name>dog</name>{box}</object></annotation>")
    found = read_annotation(path)
    assert (found.width, found.things[0].box) == (0, (0, 1, 30, 40))
