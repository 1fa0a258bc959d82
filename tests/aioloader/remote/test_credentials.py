"""Tests of Amazon's shared configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioloader.storage.remote.environment import shared_profile


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        "[work]\naws_access_key_id = C\naws_secret_access_key = D\naws_session_token = E\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = us-west-2\n")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_default_profile(files: dict[str, str]) -> None:
    assert shared_profile(files) == {"access_key_id": "A", "secret_access_key": "B", "region": "eu-west-1"}


def test_a_profile_that_the_environment_names(files: dict[str, str]) -> None:
    found = shared_profile({**files, "AWS_PROFILE": "work"})
    assert found == {
        "access_key_id": "C",
        "secret_access_key": "D",
        "session_token": "E",
        "region": "us-west-2",
    }


def test_keys_in_the_environment_go_first(files: dict[str, str]) -> None:
    assert shared_profile({**files, "AWS_ACCESS_KEY_ID": "X", "AWS_REGION": "here"}) == {}


@pytest.mark.parametrize("text", [None, "no section", "[default]\naws_access_key_id = A\n"])
def test_files_that_say_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "credentials").write_text(text)
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "x"),
    }
    assert shared_profile(environment) == {}
