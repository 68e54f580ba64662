"""XML without document types: no entities, so nothing to expand and nothing to fetch."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from directloss._checks import fail

MOST_BYTES = 5_000_000
"""The largest annotation of VOC2012 has about 30,000."""


class _DocumentTypeError(Exception):
    pass


def read_xml(path: Path) -> Element:
    """The root element. A document type declaration is refused before the parser has seen what it declares."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            fail(str(path), f"must be an annotation of at most {MOST_BYTES:,} bytes", f"{size:,} bytes long")
        return _parse(path.read_bytes())
    except _DocumentTypeError:
        hint = "Annotations of VOC have none; entities are never expanded."
        fail(str(path), "must be XML without a document type declaration", "one with <!DOCTYPE ...>", hint)
    except FileNotFoundError:
        fail(str(path), "must be an XML file", "missing")
    except (OSError, expat.ExpatError, ValueError, LookupError) as error:
        fail(str(path), "must be readable XML", f"not ({error})" if path.stat().st_size else "empty")


def _parse(data: bytes) -> Element:
    # The parser itself, because that of xml.etree has no way to refuse document types.
    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(data, True)
    return builder.close()


def _refuse(*_declared: object) -> NoReturn:
    raise _DocumentTypeError
