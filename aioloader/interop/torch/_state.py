"""State of a torch loader: the engine's progress, and the generators from which the order of the epoch was drawn."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import torch

from aioloader.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE_VERSION = 1


def generators_of(loader: torch.utils.data.DataLoader) -> dict[str, torch.Generator]:
    """Return the generators that a loader and torch's samplers draw an order from, by their places."""
    found = {"loader": loader.generator if loader.generator is not None else torch.default_generator}
    batches = loader.batch_sampler
    for name, owner in (("sampler", loader.sampler), ("batches", getattr(batches, "sampler", None))):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not each for each in found.values()):
            found[name] = generator
    return found


def all_generators(loader: torch.utils.data.DataLoader) -> dict[str, torch.Generator]:
    """Return the generators of the order, and torch's global one, which samples draw from in the script's process."""
    found = generators_of(loader)
    if all(each is not torch.default_generator for each in found.values()):
        found["global"] = torch.default_generator
    return found


def states_of(generators: dict[str, torch.Generator]) -> dict[str, Any]:
    """Return the states of some generators, uint8 tensors."""
    return {name: generator.get_state() for name, generator in generators.items()}


def encode(states: dict[str, Any]) -> dict[str, str]:
    """Return the states of generators as text."""
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def decode(generators: dict[str, torch.Generator], encoded: Any) -> dict[str, Any]:
    """Return the states of generators that a checkpoint holds, uint8 tensors that fit them; nothing is changed.

    Raises:
        ResumeError: they are corrupt, or of other generators.
    """
    if not isinstance(encoded, dict) or encoded.keys() != generators.keys():
        expected = sorted(generators)
        found = sorted(map(str, encoded)) if isinstance(encoded, dict) else type(encoded).__name__
        raise ResumeError(
            "generators", expected, found, "give the loader and its sampler a generator as before"
        )
    states = {}
    try:
        for name, text in encoded.items():
            data = bytearray(base64.b64decode(text, validate=True))
            states[name] = torch.frombuffer(data, dtype=torch.uint8)
            torch.Generator(generators[name].device).set_state(states[name])
    except (TypeError, ValueError, RuntimeError) as error:
        raise ResumeError(
            "generators", "states of torch.Generator", "something else", "the state is corrupt"
        ) from error
    return states


def restore(generators: dict[str, torch.Generator], states: dict[str, Any]) -> None:
    """Set generators to decoded states."""
    for name, state in states.items():
        generators[name].set_state(state)


def check(state: Any, parts: Sequence[str], batch_size: int | None) -> None:
    """Check the form of a state.

    Args:
        state: the state.
        parts: names of the entries that it must have.
        batch_size: the loader's batch size.

    Raises:
        ResumeError: it does not come from a torch loader, or from one with another batch size.
    """
    if not isinstance(state, dict):
        raise ResumeError("state", "a dict", type(state).__name__)
    if state.get("torch_version") != STATE_VERSION or any(name not in state for name in parts):
        raise ResumeError(
            "torch_version",
            STATE_VERSION,
            state.get("torch_version"),
            "pass a result of this class's state_dict()",
        )
    if state["batch_size"] != batch_size:
        raise ResumeError(
            "batch_size", batch_size, state["batch_size"], "batches are counted: use the same size"
        )
