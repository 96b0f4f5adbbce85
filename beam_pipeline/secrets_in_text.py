"""Credentials in addresses and options: found, and hidden from messages.

::

    s3://KEY:SECRET@bucket/x.wav              a user and a password
    s3://bucket/x.wav?X-Amz-Signature=...     a signed address
    --s3_secret_access_key=...                an option of Beam
"""

from __future__ import annotations

import re

_NAMES = r"signature|credential|secret|token|password|passwd|access_?key|sas|sig"
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
_SIGNED = re.compile(rf"([?&;][\w.-]*(?:{_NAMES})[\w.-]*=)[^&\s'\"]+", re.IGNORECASE)
_OPTION = re.compile(rf"(--[\w-]*(?:{_NAMES})[\w-]*[= ])[^\s'\"]+", re.IGNORECASE)

HIDDEN = "***"


def hidden(text: str) -> str:
    """Returns a text with ``***`` in place of credentials.

    >>> hidden("s3://me:mine@bucket/x?X-Amz-Signature=0a1b&v=1")
    's3://***@bucket/x?X-Amz-Signature=***&v=1'
    """
    if "://" in text:
        text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _SIGNED.sub(rf"\1{HIDDEN}", text)
    return _OPTION.sub(rf"\1{HIDDEN}", text)


def holds_credentials(path: str) -> bool:
    """Whether an address has a user and a password, or is signed."""
    return "://" in path and bool(_USER.search(path) or _SIGNED.search(path))
