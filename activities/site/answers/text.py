"""Text from nodes, without the characters that act on a reader's screen instead of standing on it.

Terminals obey control characters, and a change of the writing direction makes a line read as
another one.
"""

import re

_BREAKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_UNPRINTED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0, DEL and C1; the marks, embeddings, overrides and isolates of bidirectional text; surrogates,
which no encoding takes."""


def plain(text: str, most: int) -> str:
    """The last `most` characters of a text, on one line and without control characters.

    A break of the line becomes a blank. The end is kept, because errors stand there.
    """
    return _UNPRINTED.sub("", _BREAKS.sub(" ", text)).strip()[-most:]
