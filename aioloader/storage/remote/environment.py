"""Settings that the tools of each cloud read from the environment and files, and the client library does not.

The functions for the clouds add settings to the options of a store that are not set yet, and return the endpoint, whose
scheme decides whether the connection is encrypted. Those for the Hugging Face Hub return its endpoint and the token.
"""

from __future__ import annotations

import configparser
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST_TOKEN_CHARACTERS = 4096
_TRUE = {"1", "ON", "YES", "TRUE"}
_PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
# With one of these variables the library finds keys by itself, and they take precedence over the files.
_FOUND_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

_AZURE_VARIABLES = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME",),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    "sas_key": ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    "use_emulator": ("AZURE_STORAGE_USE_EMULATOR",),
}


def s3(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Read Amazon's ``AWS_ENDPOINT_URL`` and shared files.

    Args:
        options: of the store, by obstore's names; settings are added.
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


def shared_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return keys and region of a profile of ``aws configure``, by obstore's names; empty if the files have none.

    Args:
        environment: with ``AWS_PROFILE``, ``AWS_SHARED_CREDENTIALS_FILE`` and ``AWS_CONFIG_FILE``.
    """
    profile = environment.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    config = _section(
        environment.get("AWS_CONFIG_FILE", "~/.aws/config"),
        profile if profile == "default" else f"profile {profile}",
    )
    if "region" in config and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & environment.keys():
        found["region"] = config["region"]
    if any(name in environment for name in _FOUND_ELSEWHERE):
        return found
    keys = _section(environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), profile)
    for source in (config, keys):
        if "aws_access_key_id" in source and "aws_secret_access_key" in source:
            found |= {ours: source[theirs] for theirs, ours in _PROFILE_KEYS.items() if theirs in source}
    return found


def _section(path: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
        return dict(parser.items(name)) if parser.has_section(name) else {}
    except (OSError, configparser.Error, UnicodeDecodeError):
        return {}


def google(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Read Google's ``STORAGE_EMULATOR_HOST``; an emulator accepts any credentials."""
    endpoint = _first(options, "base_url", "google_base_url") or _first(environment, "GOOGLE_BASE_URL")
    emulated = environment.get("STORAGE_EMULATOR_HOST", "")
    if emulated and not endpoint:
        endpoint = emulated if "://" in emulated else f"http://{emulated}"
        options["base_url"] = endpoint
        if not options.get("skip_signature"):
            options.setdefault("bearer_token", "emulator")
    return endpoint


def azure(options: dict[str, Any], environment: Mapping[str, str]) -> str:
    """Read Azure's ``AZURE_STORAGE_CONNECTION_STRING``."""
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


def hub_endpoint(environment: Mapping[str, str]) -> str:
    """Return the address of the Hugging Face Hub, or of a mirror: ``HF_ENDPOINT``, without a slash at its end.

    Raises:
        ValueError: it is not a URL of HTTP, or contains a password or a query.
    """
    endpoint = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or "https://huggingface.co"
    parts = urlsplit(endpoint)
    plain = not (parts.query or parts.fragment or "@" in parts.netloc) and re.fullmatch(
        r"[\x21-\x7e]+", endpoint
    )
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(
            "HF_ENDPOINT must be a URL such as https://huggingface.co, without a password or a query"
        )
    return endpoint


def hub_token(environment: Mapping[str, str]) -> str | None:
    """Return the user's token for the Hugging Face Hub; None without one.

    From ``HF_TOKEN`` or its former name ``HUGGING_FACE_HUB_TOKEN``, else from the file that ``hf auth login`` writes:
    ``HF_TOKEN_PATH``, else ``token`` in ``HF_HOME`` (https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables).

    Raises:
        ValueError: it contains characters that cannot be sent.
    """
    if environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").strip().upper() in _TRUE:
        return None
    token, source = "", "HF_TOKEN"
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if not token:
            token, source = environment.get(name, "").strip(), name
    if not token:
        source = _hub_token_file(environment)
        try:
            with open(source, encoding="utf-8") as file:
                token = file.read(_MOST_TOKEN_CHARACTERS).strip()
        except (OSError, ValueError):
            return None
    if not token:
        return None
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ValueError(
            f"the token of the Hugging Face Hub in {source} is malformed; run `hf auth login` again"
        )
    return token


def _hub_token_file(environment: Mapping[str, str]) -> str:
    caches = environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    home = environment.get("HF_HOME") or os.path.join(caches, "huggingface")
    path = environment.get("HF_TOKEN_PATH") or os.path.join(home, "token")
    return os.path.expandvars(os.path.expanduser(path))


def _first(options: Mapping[str, Any], *names: str) -> str:
    return next((str(options[name]) for name in names if options.get(name)), "")
