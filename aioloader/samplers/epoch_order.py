"""Order of a shuffled epoch: a keyed permutation of range(n), or windows of it; any range is computed separately.

The samplers call these functions in their own `indices` or `batches`.

Rule (docs/design.md, "Order and randomness"). The key of an order is (seed, epoch); it depends on nothing else.
`permute` computes a full shuffle, `permute_in_windows` the order for data that are slow to read in random order, and
`permute_rounds` and `permute_each` many short orders at once.

A full shuffle below 2**16 items: every item gets a random 64-bit word and the items are sorted by it. Words drawn
independently from one distribution are exchangeable, so every order of distinct words is equally likely: this is a
uniform shuffle. Equal words (probability below 2**-33) keep their items' order.

From 2**16 items on: a block cipher over [0, 2**b), the smallest power of two that holds n. Its halves of b // 2 and
b - b // 2 bits alternate: each round adds (xor) to one half a keyed hash of the other, which can be undone, so the
whole is a bijection for every hash (an unbalanced Feistel network; Schneier and Kelsey, 1996). A value outside [0, n)
is enciphered again until it is inside ("cycle walking"; Black and Rogaway, 2002): still a bijection, of [0, n), and
fewer than two passes on average. Memory does not grow with n.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from aioloader.rng import CHOICE_DOMAIN, ORDER_DOMAIN, TURN_DOMAIN, Rng

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.foundation.types import IntArray

ORDER_VERSION = 2
"""Number of this rule and of that of a sample's draws. A saved position is valid only under the rules that it was saved
with."""

_SORT_BELOW = 1 << 16
_ITEM_BITS = np.uint64(16)
_UPPER = ~np.uint64(_SORT_BELOW - 1)
_MOST_ITEMS = 1 << 62
_BLOCK = 1 << 14  # positions at a time: the arrays of one round stay in the second-level cache

# Half the domain may be 8 bits wide; few rounds would leave visible structure. The standard ciphers for small
# domains take 8 (NIST SP 800-38G, FF3) or 10 rounds.
_ROUNDS = 8
_MIX = np.uint64(0xD6E8FEB86659FD93)  # an odd multiplier whose products spread well upwards
_FOLD = np.uint64(32)
_SORT_EACH = 32
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: keys of successive rounds lie far apart
_MASK_64 = (1 << 64) - 1
CHUNKS_OF_A_WINDOW = 16


def permute(seed: int, epoch: int, n: int, start: int, stop: int) -> IntArray:
    """Return the indices at positions start <= p < stop of an epoch's order: a full shuffle of range(n).

    Request 16,384 positions or more at a time if n is large: the cost of a call is shared among them.

    Args:
        seed: 0 <= seed < 2**64.
        epoch: 0 <= epoch < 2**64.
        n: number of items, at most 2**62.
        start: first position.
        stop: end of the positions, exclusive; 0 <= start <= stop <= n.

    Returns:
        int64 (stop - start,), a new array.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 <= start <= stop <= n <= _MOST_ITEMS:
        raise ValueError(f"need 0 <= start <= stop <= n <= 2**62, got start={start}, stop={stop}, n={n}")
    if not (0 <= seed < 1 << 64 and 0 <= epoch < 1 << 64):
        raise ValueError(f"seed and epoch must be in [0, 2**64), got seed={seed}, epoch={epoch}")
    if n < _SORT_BELOW:
        return _sorted_words(seed, epoch, n)[start:stop].copy()
    return _walk(np.arange(start, stop, dtype=np.uint64), n, _round_keys(seed, epoch)).view(np.int64)


@lru_cache(maxsize=8)
def _sorted_words(seed: int, epoch: int, n: int) -> IntArray:
    # Kept for the blocks of the epochs in progress; at most 8 times 512 kB.
    words = Rng(seed, epoch, 0, ORDER_DOMAIN).words(n)
    # The item's number in place of the word's last bits: values sort faster than places do.
    packed = words & _UPPER | np.arange(n, dtype=np.uint64)
    packed.sort()
    upper = packed >> _ITEM_BITS
    if (upper[1:] == upper[:-1]).any():  # the last bits would decide
        order = np.argsort(words, kind="stable").astype(np.int64, copy=False)
    else:
        order = (packed & ~_UPPER).view(np.int64)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=8)
def _round_keys(seed: int, epoch: int) -> tuple[tuple[np.uint64, np.uint64], ...]:
    """Draw an odd multiplier and a summand for each round."""
    words = Rng(seed, epoch, 0, ORDER_DOMAIN).words(2 * _ROUNDS)
    words[0::2] |= np.uint64(1)
    return tuple(zip(words[0::2], words[1::2], strict=True))


def _walk(
    values: npt.NDArray[np.uint64], n: int, keys: tuple[tuple[np.uint64, np.uint64], ...]
) -> npt.NDArray[np.uint64]:
    """Encipher values, in place, until they are in [0, n)."""
    # Blocks walk on together: the last few values of each would need many short passes.
    pending = values
    places = None
    while len(pending):
        for begin in range(0, len(pending), _BLOCK):
            pending[begin : begin + _BLOCK] = _encipher(pending[begin : begin + _BLOCK], n, keys)
        if places is not None:
            values[places] = pending
        outside = np.flatnonzero(pending >= np.uint64(n))
        places = outside if places is None else places[outside]
        pending = pending[outside]
    return values


def _encipher(
    values: npt.NDArray[np.uint64], n: int, keys: tuple[tuple[np.uint64, np.uint64], ...]
) -> npt.NDArray[np.uint64]:
    """Encipher values once, over [0, 2**b), the smallest power of two >= n."""
    bits = (n - 1).bit_length()
    low_bits = bits - bits // 2
    shift = np.uint64(low_bits)
    low = values & np.uint64((1 << low_bits) - 1)
    high = values >> shift
    # The hash's upper bits are its best mixed ones, so a half takes its width from them.
    to_low, to_high = np.uint64(64 - low_bits), np.uint64(64 - bits // 2)
    hashed, folded = np.empty_like(values), np.empty_like(values)
    for number, (factor, summand) in enumerate(keys):
        source, target, keep = (high, low, to_low) if number % 2 else (low, high, to_high)
        np.multiply(source, factor, out=hashed)
        np.add(hashed, summand, out=hashed)
        np.right_shift(hashed, _FOLD, out=folded)
        np.bitwise_xor(hashed, folded, out=hashed)
        np.multiply(hashed, _MIX, out=hashed)
        np.right_shift(hashed, keep, out=hashed)
        np.bitwise_xor(target, hashed, out=target)
    return (high << shift) | low


def mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash each 64-bit word, into a new array: every bit of the result depends on every bit of the word.

    Source: Stafford's variant 13 of MurmurHash3's last steps, as in SplitMix64 (Steele, Lea and Flood, 2014).
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: npt.NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return result


def epoch_key(seed: int, epoch: int, use: int) -> np.uint64:
    """Return a key for one use of one epoch, for `permute_rounds`.

    Args:
        seed, epoch: the loader's.
        use: distinguishes keys of the same epoch.
    """
    word: np.uint64 = Rng(seed, epoch, use, CHOICE_DOMAIN).words(1)[0]
    return word


def permute_rounds(
    key: np.uint64 | npt.NDArray[np.uint64], rounds: IntArray, sizes: int | IntArray, places: IntArray
) -> IntArray:
    """Evaluate many keyed permutations at once; every round has a new order of the same items.

    Args:
        key: of all, or uint64 (n,).
        rounds: int64 (n,), numbers of rounds.
        sizes: items of all, or int64 (n,), 1 to 2**52.
        places: int64 (n,), 0 <= places[i] < sizes[i].

    Returns:
        int64 (n,), a new array.
    """
    keys = mix(key + rounds.astype(np.uint64))
    return permute_each(keys, np.broadcast_to(np.asarray(sizes, np.int64), places.shape), places)


def permute_each(keys: npt.NDArray[np.uint64], sizes: IntArray, places: IntArray) -> IntArray:
    """Evaluate many keyed permutations at once: permutation i is one of range(sizes[i]) under keys[i].

    Up to 32 items: sorted by words that are drawn for them, as above; few rounds of such a narrow cipher would make
    some orders more frequent than others. Above: the cipher, with a separate width for each element.

    Args:
        keys: uint64 (n,); equal keys of equal sizes have the same order.
        sizes: int64 (n,), 1 to 2**52.
        places: int64 (n,), 0 <= places[i] < sizes[i].

    Returns:
        int64 (n,), a new array.
    """
    result = np.zeros(len(places), np.int64)
    for low, width in ((1, 8), (8, _SORT_EACH)):
        few = np.flatnonzero((sizes > low) & (sizes <= width))
        if len(few):
            result[few] = _sort_each(keys[few], sizes[few], places[few], width)
    pending = np.flatnonzero(sizes > _SORT_EACH)
    bits = np.maximum(np.frexp((sizes - 1).astype(np.float64))[1], 2).astype(np.uint64)
    values = places.astype(np.uint64)
    while len(pending):
        values[pending] = _encipher_each(values[pending], bits[pending], keys[pending])
        inside = values[pending] < sizes[pending].astype(np.uint64)
        done = pending[inside]
        result[done] = values[done].astype(np.int64)
        pending = pending[~inside]
    return result


def _sort_each(keys: npt.NDArray[np.uint64], sizes: IntArray, places: IntArray, width: int) -> IntArray:
    """Evaluate many permutations of at most `width` items; see `permute_each`."""
    # Neighbours often have the same key; each order is computed once.
    new = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]) | (sizes[1:] != sizes[:-1])])
    numbers = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    words = mix(mix(keys[new])[:, None] + numbers)
    words[np.arange(width) >= sizes[new][:, None]] = np.uint64(_MASK_64)  # after all others
    orders = np.argsort(words, axis=1, kind="stable")
    row = np.repeat(np.arange(len(new)), np.diff(np.r_[new, len(keys)]))
    result: IntArray = orders[row, places].astype(np.int64, copy=False)
    return result


def _encipher_each(
    values: npt.NDArray[np.uint64], bits: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Encipher each value once, over [0, 2**bits[i]), bits at least 2."""
    high_bits = bits >> np.uint64(1)
    low_bits = bits - high_bits
    one = np.uint64(1)
    low = values & ((one << low_bits) - one)
    high = values >> low_bits
    to_low, to_high = np.uint64(64) - low_bits, np.uint64(64) - high_bits
    for number in range(1, _ROUNDS + 1):
        keyed = keys + np.uint64(number * _GOLDEN & _MASK_64)
        if number % 2:
            high ^= mix(mix(keyed) ^ low) >> to_high
        else:
            low ^= mix(mix(keyed) ^ high) >> to_low
    return (high << low_bits) | low


def permute_in_windows(seed: int, epoch: int, n: int, start: int, stop: int, *, window: int) -> IntArray:
    """Return the indices at positions start <= p < stop of an order for data that are slow to read in random order.

    Rule: the range, as a ring, is cut into chunks of neighbours, in each epoch from another start. The chunks are put
    in a random order, and each window of `window` indices of the result is shuffled. A window holds 16 chunks,
    so its records are in 16 to 19 ranges of the file (in more if it is below 240 and not a multiple of 16), and a
    chunk's records are read close together in time. The rest that does not fill a chunk comes in the last window.
    Chunks and windows are computed on demand: memory is that of one window.

    The cost: two samples of a window are from the same chunk, and are neighbours in the file, with a probability of
    1/16; in a full shuffle the probability is almost 0. A set that is sorted by class should be packed in random order,
    or have chunks much shorter than its classes.

    Args:
        seed, epoch: as for `permute`.
        n: number of items.
        start, stop: the positions start <= p < stop, 0 <= start <= stop <= n.
        window: indices that are shuffled together, at least `CHUNKS_OF_A_WINDOW`.

    Returns:
        int64 (stop - start,), a new array.
    """
    if start == stop:
        return np.empty(0, np.int64)
    chunk = window // CHUNKS_OF_A_WINDOW
    ring_start = Rng(seed, epoch, 0, TURN_DOMAIN).integers(n)
    parts = []
    for number in range(start // window, (stop - 1) // window + 1):
        begin = number * window
        end = min(begin + window, n)
        low, high = max(start, begin) - begin, min(stop, end) - begin
        places = begin + _window_order(seed, epoch, number, end - begin)[low:high]
        # The chunks that the window touches; the rest that does not fill a chunk is last.
        first, whole = begin // chunk, n // chunk
        chunks = permute(seed, epoch, whole, min(first, whole), min(-(-end // chunk), whole))
        if end > whole * chunk:
            chunks = np.append(chunks, whole)
        which, inside = np.divmod(places, chunk)
        parts.append((chunks[which - first] * chunk + inside + ring_start) % n)
    return np.concatenate(parts)


@lru_cache(maxsize=4)
def _window_order(seed: int, epoch: int, number: int, size: int) -> IntArray:
    key = int(Rng(seed, epoch, number, CHOICE_DOMAIN).words(1)[0])
    order = permute(key, epoch, size, 0, size)
    order.flags.writeable = False
    return order
