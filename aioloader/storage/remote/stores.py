"""Stores of objects, and uploads to them, by the package obstore, which is imported here and only when a URL is used.

Credentials and settings are those that the tools of each cloud find in the environment; `configure` adds to them.
The library's own retries are off: `aioloader.storage.remote.client` retries and counts the attempts.

The functions for the clouds add settings to the options of a store that are not set yet, and return the endpoint, whose
scheme decides whether the connection is encrypted. Those for the Hugging Face Hub return its endpoint and the token.
"""

from __future__ import annotations

import configparser
import os
import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from aioloader.errors import ForkedError, MissingPackageError, RemoteWriteError
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.version import __version__
from aioloader.storage.remote.failures import classify
from aioloader.storage.urls import BUCKETS, WEB, check_writable, locate, redact_url, scheme_of

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


# Every signed URL has a separate store: the latest are kept, with their connections. Opening one takes 6 ms of a
# processor, and a connection; a kept one has 140 KiB, and a few descriptors.
_MOST_STORES = 512
_DESCRIPTORS_OF_STORE = 8
_NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(0)}
_FROM_ENVIRONMENT = {"s3": s3, "gs": google, "az": azure, "abfs": azure, "abfss": azure}
_options: dict[str, dict[str, Any]] = {}
_lock = threading.Lock()
# Stores in use, by all that they were opened with: 16 files that are opened at a time share one, and its connections.
_in_use: WeakValueDictionary[str, Any] = WeakValueDictionary()
_guard: ForkGuard | None = None  # of the library's threads


def configure(prefix: str, **options: Any) -> None:
    """Set options for all URLs that begin with a prefix, in this process; the longest matching prefix counts.

    Args:
        prefix: such as "s3://bucket/" or "https://".
        options: of obstore's store for it, such as ``skip_signature=True`` (public S3 buckets without credentials),
            ``endpoint="http://localhost:9000"``, ``region``, ``account_name``; ``client_options={...}`` for
            timeouts, proxies, headers and certificates. Without options, earlier ones for the prefix are removed.
    """
    with _lock:
        _options.pop(prefix, None)
        if options:
            _options[prefix] = options


def options_for(url: str) -> dict[str, Any]:
    """Return the options that `configure` was called with for a URL."""
    with _lock:
        fitting = [prefix for prefix in _options if url.startswith(prefix)]
        return dict(_options[max(fitting, key=len)]) if fitting else {}


def library() -> Any:
    """Return the package obstore.

    Raises:
        ForkedError: the process was forked from one that uses the package: requests would never be answered.
        MissingPackageError: it is not installed.
    """
    global _guard
    if _guard is None:
        _guard = ForkGuard()
    elif _guard.forked:
        raise ForkedError()
    try:
        import obstore
    except ImportError as error:
        raise MissingPackageError("obstore", extra="remote", what="paths that are URLs need") from error
    return obstore


def _client_options(base: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "user_agent": f"aioloader/{__version__}",
        # The client has its own deadlines; this one must not end a slow answer earlier.
        "timeout": timedelta(hours=1),
        "connect_timeout": timedelta(seconds=5),
        # The scheme of the URL decides about encryption.
        "allow_http": base.startswith("http://"),
        **given,
    }


def _most_stores() -> int:
    """Return the number of stores that are kept, by the number of descriptors that a process may have."""
    try:
        import resource
    except ImportError:  # Windows
        return _MOST_STORES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_STORES
    return max(16, min(_MOST_STORES, soft // _DESCRIPTORS_OF_STORE))


def _open(
    base: str, url: str, retries: Mapping[str, Any] = _NO_RETRIES, headers: Mapping[str, str] | None = None
) -> Any:
    """Open a store, or return the one that was opened in the same way and is still in use.

    Args:
        base: the store's URL, see `urls.locate`.
        url: of an object in it, for its options.
        retries: the library's own.
        headers: of all requests.

    Raises:
        ValueError: the URL is malformed, or an option is, or one is missing.
    """
    library()
    from obstore.store import HTTPStore, from_url

    options = options_for(url)
    client = dict(options.pop("client_options", {}))
    if headers:
        client["default_headers"] = {**client.get("default_headers", {}), **headers}
    if retries:
        options["retry_config"] = dict(retries)
    scheme = scheme_of(base) or ""
    make, endpoint = HTTPStore.from_url, base
    if scheme not in WEB:
        known = BUCKETS[scheme]
        base = known + base[len(scheme) :]
        make, endpoint = from_url, _FROM_ENVIRONMENT[known](options, os.environ)
    options["client_options"] = _client_options(endpoint, client)
    key = repr((base, options))
    store = _in_use.get(key)
    if store is None:
        try:
            store = _in_use[key] = make(base, **options)
        except Exception as error:
            # Nothing was sent yet: an error now, such as a missing account name, cannot be fixed by a retry.
            raise ValueError(str(error).partition("\n")[0]) from error
    return store


def keep_connections(url: str) -> object:
    """Return an object that keeps the connections to a store open between its users, for as long as it exists.

    A connection takes two or three times as long as a request on it.

    Args:
        url: of an object that is not on the Hub.

    Raises:
        MissingPackageError: obstore is not installed.
        ValueError: the URL is malformed, or an option is.
    """
    return _open(locate(url).store, url)


class _StoreKey(NamedTuple):
    store: str
    etag: str | None
    authorization: str | None


class Stores:
    """Stores of one byte source, with their connections; others may use them, too. Can be pickled."""

    def __init__(self) -> None:
        self._stores: LRUCache[_StoreKey, Any] = LRUCache(_most_stores())
        self._latest: tuple[tuple[str, str | None, str | None], Any, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Stores, ()

    def find(
        self,
        url: str,
        etag: str | None = None,
        *,
        authorization: str | None = None,
        configured_as: str | None = None,
    ) -> tuple[Any, str]:
        """Return the store of an object, and its path in the store.

        Args:
            url: the object.
            etag: the store then returns no bytes of objects that have another ETag.
            authorization: header of all requests. A redirect to another origin is followed without it.
            configured_as: URL whose options count, see `configure`; None: `url`.

        Raises:
            MissingPackageError: obstore is not installed.
            ValueError: the URL is malformed, or an option is.
        """
        wanted = url, etag, authorization
        # The same record file is requested again and again.
        if self._latest is not None and self._latest[0] == wanted:
            return self._latest[1:]
        location = locate(url)
        key = _StoreKey(location.store, etag, authorization)
        store = self._stores.get(key)
        if store is None:
            headers = {"If-Match": etag, "Authorization": authorization}
            sent = {name: value for name, value in headers.items() if value is not None}
            store = _open(location.store, configured_as or url, headers=sent)
            self._stores.put(key, store)
        self._latest = wanted, store, location.path
        return store, location.path

    def close(self) -> None:
        """Close idle connections that nobody else uses; the others are closed when they become idle."""
        self._stores.clear()
        self._latest = None


def _writable(url: str) -> tuple[Any, str]:
    """Return a store that retries by itself, for writing an object once, and the object's path in it.

    Raises:
        ValueError: the URL is malformed, or is one that cannot be written.
    """
    check_writable(url)
    store, path = locate(url)
    return _open(store, url, {}), path


def upload(path: str | os.PathLike[str], url: str) -> None:
    """Upload a file to a URL; an existing object is replaced when all bytes have arrived.

    Raises:
        MissingPackageError: obstore is not installed.
        OSError: the file cannot be read.
        RemoteWriteError: the object cannot be written.
    """
    with open(path, "rb") as file:
        try:
            library().put(*_writable(url), file)
        except Exception as error:
            raise RemoteWriteError(redact_url(url), classify(error).text) from error


def delete(url: str) -> None:
    """Remove an object; a missing one is not an error.

    Raises:
        RemoteWriteError: it cannot be removed.
    """
    try:
        library().delete(*_writable(url))
    except FileNotFoundError:
        pass
    except Exception as error:
        raise RemoteWriteError(redact_url(url), classify(error).text) from error
