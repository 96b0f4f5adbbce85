"""Finds credentials for object stores: variables, files, the machine's role."""

from __future__ import annotations

import functools
import os
from typing import Any

from beam_pipeline.errors import InputError

_METADATA_SERVER = "169.254.169.254"
_METADATA_SECONDS = 1.0
_AWS_ROLE = ("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
_GOOGLE_ROLE = (
    "GET",
    "/computeMetadata/v1/instance/service-accounts/default/email",
    "Metadata-Flavor",
    "Google",
)
_AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)
_GOOGLE_VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SKIP_SIGNATURE",
)

_GCLOUD_FILE = "~/.config/gcloud/application_default_credentials.json"


def s3_access() -> dict[str, Any]:
    """Returns the options of obstore's ``S3Store`` that its variables do not give.

    Requests are unsigned if there are no credentials.
    """
    access: dict[str, Any] = {}
    if not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION"):
        access["region"] = "us-east-1"
    if any(os.environ.get(name) for name in _AWS_VARIABLES):
        return access
    if os.environ.get("AWS_PROFILE") or _has_file(
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    ):
        return {**access, **_boto3_access()}
    if _machine_has_role(*_AWS_ROLE):
        return access
    return {**access, "skip_signature": True}


def _boto3_access() -> dict[str, Any]:
    """Reads the AWS configuration and credentials files with boto3."""
    try:
        import boto3
    except ImportError as error:
        raise InputError(
            "The credentials are in AWS's files. boto3 is needed to read them, but it "
            "is not installed. Run pip install boto3, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        ) from error
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    access: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    return {**access, "region": session.region_name} if session.region_name else access


def gcs_access() -> dict[str, Any]:
    """Returns the options of obstore's ``GCSStore`` that its variables do not give.

    Requests are unsigned if there are no credentials.
    """
    access: dict[str, Any] = {}
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and not os.environ.get("GOOGLE_BASE_URL"):
        access["base_url"] = emulator if "://" in emulator else f"http://{emulator}"
    if any(os.environ.get(name) for name in _GOOGLE_VARIABLES):
        return access
    if emulator:
        return {**access, "bearer_token": "emulator"}
    if _has_file(_GCLOUD_FILE) or _machine_has_role(*_GOOGLE_ROLE):
        return access
    return {**access, "skip_signature": True}


def _has_file(path: str) -> bool:
    return os.path.isfile(os.path.expanduser(path))


@functools.cache
def _machine_has_role(method: str, path: str, header: str, value: str) -> bool:
    """Whether the metadata server of a cloud machine offers credentials.

    Sends one request per process and role, with a timeout of one second.
    """
    import http.client  # here: local files do without it

    host = os.environ.get("GCE_METADATA_HOST", _METADATA_SERVER)
    connection = http.client.HTTPConnection(host, timeout=_METADATA_SECONDS)
    try:
        connection.request(method, path, headers={header: value})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
