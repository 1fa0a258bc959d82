"""Amazon's shared files: what ``aws configure`` wrote, for the profile that the environment names. Reads files only.

The keys that stand in the environment itself are found by the client library.
"""

from __future__ import annotations

import configparser
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("shared_profile",)

_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
# With one of these the library finds keys by itself, and they go before the files.
_FOUND_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def shared_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Keys and region of a profile, by the client library's names; empty where the files say nothing.

    Args:
        environment: ``AWS_PROFILE``, ``AWS_SHARED_CREDENTIALS_FILE`` and ``AWS_CONFIG_FILE`` are looked up in it.
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
            found |= {ours: source[theirs] for theirs, ours in _KEYS.items() if theirs in source}
    return found


def _section(path: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
        return dict(parser.items(name)) if parser.has_section(name) else {}
    except (OSError, configparser.Error, UnicodeDecodeError):
        return {}
