"""How a region's cache names the parts of contents.

A name is made of a part's hash by a key of the content, which the platform keeps: so no job that
reaches the cache learns from a hash what others have, nor gets it.
"""

from __future__ import annotations

import hashlib
import hmac


def name_of(key: str, sha256: str) -> str:
    """The name of the part with this hash. key: of its content, in hexadecimal digits."""
    return hmac.new(bytes.fromhex(key), sha256.encode(), hashlib.sha256).hexdigest()
