"""Errors of object stores, as errors of this package with what to do."""

from __future__ import annotations

import errno
import re

from beam_pipeline.errors import InputError, StoreError

# The owner of a scheme's buckets, the variables that select another server,
# and the sources of credentials.
_OWNERS = {"s3": "Amazon", "gs": "Google"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL",),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
}
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, AWS_PROFILE, "
    "~/.aws/credentials, a web identity and the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, gcloud's default credentials and the "
    "service account of the machine",
}
_LISTING_REFUSED = re.compile(r"list request.* status code: 40[13]")
_MESSAGE = re.compile(r'message: "([^"]+)"')


def explain(path: str, error: Exception, unsigned: bool) -> Exception:
    """Returns the error to raise instead of the client's.

    ``unsigned``: the client has found no credentials.
    """
    from obstore import exceptions

    text = str(error)
    first = text.partition("\n")[0]
    scheme, _, rest = path.partition("://")
    bucket = rest.partition("/")[0]
    if "<Code>NoSuchBucket</Code>" in text:
        return InputError(
            f"{path}: there is no bucket {bucket!r}. Check its name. If the store is "
            f"not {_OWNERS[scheme]}'s, set {' or '.join(_ENDPOINTS[scheme])} to its "
            "address."
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", path)
    refusals = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError
    if isinstance(error, refusals) or _LISTING_REFUSED.search(first):
        found = "none were found" if unsigned else "those found are not sufficient"
        return StoreError(
            path,
            f"the store refuses access to the bucket {bucket!r}, or to this part of it",
            f"Credentials are looked for in {_CREDENTIALS[scheme]}: {found}. They must "
            "allow listing, reading and, for an output, writing (without the right to "
            "list, the store also refuses access to missing objects).",
        )
    message = _MESSAGE.search(text)
    return StoreError(path, first + (f" ({message[1]})" if message else ""))
