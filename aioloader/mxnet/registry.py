"""`mx.registry`: registers of classes by name, for libraries that keep their datasets in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aioloader.foundation.stacks import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("get_alias_func", "get_create_func", "get_register_func", "get_registry")

_registries: dict[type, dict[str, Any]] = {}


def _of(base_class: type) -> dict[str, Any]:
    return _registries.setdefault(base_class, {})


def get_registry(base_class: type) -> dict[str, Any]:
    """Return the registered classes by their names in lower case, as a copy."""
    return dict(_of(base_class))


def get_register_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return ``register(klass, name=None)``, which returns the class.

    Args:
        base_class: the base of the classes.
        nickname: what they are called in messages.
    """
    known = _of(base_class)

    def register(klass: Any, name: str | None = None) -> Any:
        if not issubclass(klass, base_class):
            raise AssertionError(f"Can only register subclass of {base_class.__name__}")
        key = (name or klass.__name__).lower()
        if key in known:
            warn_caller(
                f"New {nickname} {klass.__module__}.{klass.__name__} registered with name {key} overrides existing "
                f"{nickname} {known[key].__module__}.{known[key].__name__}",
                UserWarning,
            )
        known[key] = klass
        return klass

    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return ``alias(*names)``, a decorator that registers a class under these names."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[Any], Any]:
        def decorate(klass: Any) -> Any:
            for name in aliases:
                register(klass, name)
            return klass

        return decorate

    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return ``create(name, *args, **kwargs)``, which makes an object of the class of this name.

    In place of a name it takes such an object, and returns it, and the JSON text of ``[name, {...}]`` or
    ``{nickname: name, ...}``.
    """
    known = _of(base_class)

    def create(*args: Any, **kwargs: Any) -> Any:
        name, args = (args[0], args[1:]) if args else (kwargs.pop(nickname), ())
        if isinstance(name, base_class):
            if args or kwargs:
                raise AssertionError(f"{nickname} is an object already: further arguments have no effect")
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise AssertionError(f"{nickname} must be of string type")
        if name.startswith("["):
            name, kwargs = json.loads(name)
            return create(name, **kwargs)
        if name.startswith("{"):
            return create(**json.loads(name))
        if name.lower() not in known:
            raise AssertionError(
                f"{name} is not registered. Please register with {nickname}.register first; known: {', '.join(known)}"
            )
        return known[name.lower()](*args, **kwargs)

    return create
