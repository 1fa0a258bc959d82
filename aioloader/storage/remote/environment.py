"""What the tools of each cloud read in the environment, and the client library does not. Reads files only.

Each function adds to the options of a store what nobody has set, and tells the endpoint: whether it is to be reached
without encryption is told by its scheme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.storage.remote.credentials import shared_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("azure", "google", "s3")

_AZURE_VARIABLES = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    "sas_key": ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "use_emulator": ("AZURE_STORAGE_USE_EMULATOR",),
}


def s3(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Amazon: ``AWS_ENDPOINT_URL`` and the shared files of a profile.

    Args:
        options: of the store, by obstore's names; is added to.
        environment: of the process.

    Returns:
        the endpoint, or "" for the cloud's own.
    """
    endpoint = _first(options, "endpoint", "aws_endpoint") or _first(
        environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
    )
    if endpoint:
        options.setdefault("endpoint", endpoint)
    for name, value in shared_profile(environment).items():
        options.setdefault(name, value)
    return endpoint


def google(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Google: ``STORAGE_EMULATOR_HOST``, where any credentials will do."""
    endpoint = _first(options, "base_url", "google_base_url") or _first(environment, "GOOGLE_BASE_URL")
    emulated = environment.get("STORAGE_EMULATOR_HOST", "")
    if emulated and not endpoint:
        endpoint = emulated if "://" in emulated else f"http://{emulated}"
        options["base_url"] = endpoint
        if not options.get("skip_signature"):
            options.setdefault("bearer_token", "emulator")
    return endpoint


def azure(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Azure: ``AZURE_STORAGE_CONNECTION_STRING``."""
    for name, value in _connection(environment).items():
        if not any(variable in environment for variable in _AZURE_VARIABLES[name]):
            options.setdefault(name, value)
    return _first(options, "endpoint", "azure_endpoint") or _first(environment, *_AZURE_VARIABLES["endpoint"])


def _connection(environment: Mapping[str, str]) -> dict[str, Any]:
    parts = (
        part.partition("=") for part in environment.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    )
    fields = {name.strip().lower(): value.strip() for name, _, value in parts if value.strip()}
    if fields.get("usedevelopmentstorage", "").lower() == "true":
        return {"use_emulator": True}
    account = fields.get("accountname", "")
    endpoint = fields.get("blobendpoint", "")
    if not endpoint and account and "endpointsuffix" in fields:
        protocol = fields.get("defaultendpointsprotocol", "https")
        endpoint = f"{protocol}://{account}.blob.{fields['endpointsuffix']}"
    found = {
        "account_name": account,
        "account_key": fields.get("accountkey", ""),
        "sas_key": fields.get("sharedaccesssignature", ""),
        "endpoint": endpoint.rstrip("/"),
    }
    return {name: value for name, value in found.items() if value}


def _first(options: Mapping[str, Any], *names: str) -> str:
    return next((str(options[name]) for name in names if options.get(name)), "")
