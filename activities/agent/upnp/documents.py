"""XML documents of a router, which is not trusted: without a DOCTYPE, so without entities."""

from __future__ import annotations

from typing import Dict, Iterator, List
from xml.parsers import expat

from .exchange import RouterError

MOST_ELEMENTS = 2000
MOST_DEPTH = 24


class Element:
    """An element without its namespace and attributes; `text` is what lies directly in it."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.children: List[Element] = []

    def all(self, name: str) -> Iterator[Element]:
        """The elements of this name in it, at any depth, in the order of the document."""
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.all(name)

    def texts(self) -> Dict[str, str]:
        """The texts of the children by their names."""
        return {child.name: child.text.strip() for child in self.children}


class _Builder:
    def __init__(self) -> None:
        self.top = Element("")
        self._open = [self.top]
        self._count = 0

    def start(self, name: str, attributes: object) -> None:
        del attributes
        self._count += 1
        if self._count > MOST_ELEMENTS or len(self._open) > MOST_DEPTH:
            raise RouterError("the router's description is too large")
        element = Element(name.rpartition(" ")[2].rpartition(":")[2])
        self._open[-1].children.append(element)
        self._open.append(element)

    def end(self, name: str) -> None:
        del name
        self._open.pop()

    def text(self, text: str) -> None:
        self._open[-1].text += text

    def refuse(self, *_: object) -> None:
        raise RouterError("the router's description declares entities, which none needs")


def parse(content: bytes) -> Element:
    """The document as an element above its root element.

    Raises: RouterError, for what is no XML, has a DOCTYPE, or is large.
    """
    builder = _Builder()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = builder.refuse
    parser.EntityDeclHandler = builder.refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    try:
        # Some routers pad their documents with zeros.
        parser.Parse(content.strip(b"\0\r\n\t "), True)
    except (expat.ExpatError, LookupError, ValueError):
        raise RouterError("the router's description is no XML") from None
    return builder.top
