"""Text format of numbers in explanations (pure)."""

from __future__ import annotations

# A gain below this is not worth a change.
HARDLY_MORE = 1.05


def faster(limit: str, gain: float) -> str:
    """Describe the gain if `limit` ("decode", or "transform <name>") took half the time."""
    if limit == "decode":
        return (
            f"decoding in half the time (smaller images, `aioloader pack --tile`, dct_scaling=True) would give "
            f"{times(gain)}"
        )
    name = limit.partition(" ")[2]
    return f"{name} in half the time would give {times(gain)}"


def times(gain: float) -> str:
    """Format a speed-up, such as "about 1.4x"."""
    if gain < HARDLY_MORE:
        return "hardly more"
    return f"about {gain:.1f}x" if gain < 9.95 else f"about {min(gain, 999):.0f}x"


def mib(nbytes: float) -> str:
    """Format a number of bytes in MiB."""
    return f"{nbytes / (1 << 20):,.1f} MiB" if nbytes < 10 << 20 else f"{nbytes / (1 << 20):,.0f} MiB"


_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number(count: int) -> str:
    """Format a count; small ones as words."""
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


_ORDINALS = (
    "",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def ordinal(number: int) -> str:
    """Format an ordinal; small ones as words."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
