"""Checks of a contender's output against its case. A figure counts only if the output passes.

Standard library and numpy only: the environment of every contender imports this module.

Labels are sample numbers, so completeness is exact: an epoch holds each number once. Pixels cannot be compared one by
one, because contenders draw other crops and resize a little differently. So each image is reduced to five numbers
(`features`), which are compared with the same five of a plain reference (`benchmarks.prepare`): the means reveal wrong
colours, wrong normalisation and labels that belong to other images; their spread over an epoch shows whether
images were cropped; the difference between left and right shows whether every other image was mirrored. Windows,
which are not resized, are searched in their images (`benchmarks.window_check`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases import MEAN, STD
from benchmarks.window_check import WindowFinder, shrink

if TYPE_CHECKING:
    from benchmarks.cases import Case


_SAMPLED = slice(3, None, 7)  # sampled rows and columns; for 112 and for 224 the same ones after mirroring
_RECORD_NBYTES = 1024

# Largest difference to the reference, in grey levels of 0 to 255, beyond the noise of the draws.
_BIAS = 4.0
_DETERMINISTIC = 6.0
_SPREAD = 0.3
_MIRRORED = 0.2
_LEAST_REPEATS = 32  # fewer samples of the same image do not determine their spread
_WINDOW_SCORE = (
    0.85  # correlation of a window with its image; half of that, where the image is another or resized
)
_WINDOW_SHARE = 0.95  # of the windows that have to reach it: a flat one may not


class WrongOutput(Exception):
    """Error raised when a contender's output differs from the case; the text names the difference."""


def check_batch(case: Case, batch: Any) -> tuple[Any, Any]:
    """Check type, shape and dtype of one batch.

    Returns:
        pixels and labels as arrays; for bytes the records and their numbers, int64 (n,).

    Raises:
        WrongOutput: the batch differs from the case.
    """
    if case.store == "bytes":
        if type(batch) is not list or len(batch) != case.batch_size:
            raise WrongOutput(f"not a list of {case.batch_size} records but {_kind(batch)}")
        bad = next((r for r in batch if type(r) is not bytes or len(r) != _RECORD_NBYTES), None)
        if bad is not None:
            raise WrongOutput(f"not bytes of length {_RECORD_NBYTES} but {_kind(bad)}")
        return batch, np.frombuffer(b"".join([r[:8] for r in batch]), np.int64)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise WrongOutput(f"a batch is not (images, labels) but {_kind(batch)}")
    images, labels = (np.asarray(part) for part in batch)
    wanted = (case.batch_size, *case.shape)
    if images.shape != wanted or images.dtype != case.dtype:
        raise WrongOutput(f"images are {images.dtype} {images.shape}, not {case.dtype} {wanted}")
    if not images[0].flags.c_contiguous:
        raise WrongOutput(
            f"images are a view with strides {images.strides}, which are not in the order of the axes"
        )
    if labels.size != case.batch_size or labels.dtype.kind not in "iuf":
        raise WrongOutput(f"labels are {labels.dtype} {labels.shape}, not {case.batch_size} numbers")
    return images, labels.reshape(-1).astype(np.int64)


def features(case: Case, images: Any) -> Any:
    """Compute five numbers of each image: mean red, green, blue; left less right half; upper less lower half.

    Args:
        case: determines the layout and whether the images are normalised.
        images: of the case's dtype and shape, (n, ...).

    Returns:
        float64 (n, 5), in grey levels of 0 to 255 for every layout.
    """
    if case.normalised:
        small = images[:, :, _SAMPLED, _SAMPLED].transpose(0, 2, 3, 1).astype(np.float64)
        small = (small * STD + MEAN) * 255.0
    else:
        small = images[:, _SAMPLED, _SAMPLED].astype(np.float64)
    height, width = small.shape[1] // 2, small.shape[2] // 2
    grey = small.mean(axis=3)
    return np.column_stack(
        [
            small.mean(axis=(1, 2)),
            grey[:, :, :width].mean(axis=(1, 2)) - grey[:, :, -width:].mean(axis=(1, 2)),
            grey[:, :height].mean(axis=(1, 2)) - grey[:, -height:].mean(axis=(1, 2)),
        ]
    )


class EpochCheck:
    """Check of one whole epoch.

    Args:
        case: the task.
        reference: see `benchmarks.prepare`: mean and deviation of the features of each image, or for windows the
            shrunken images; for "arrays" the images themselves; for "bytes" a function from a number to its record.
    """

    def __init__(self, case: Case, reference: Any) -> None:
        self._case = case
        self._reference = reference
        self._numbers: list[Any] = []
        self._features: list[Any] = []

    def add(self, batch: Any) -> None:
        """Check a batch and keep its labels and features; the batch itself is not kept.

        Raises:
            WrongOutput: the batch differs from the case.
        """
        case = self._case
        content, numbers = check_batch(case, batch)
        self._numbers.append(numbers.copy())
        if case.images:
            self._features.append(shrink(content) if case.crop == "window" else features(case, content))
            return
        if numbers.min() < 0 or numbers.max() >= case.samples:
            raise WrongOutput(f"labels from {numbers.min()} to {numbers.max()}, not 0 to {case.samples - 1}")
        if case.store == "bytes":
            same = all(self._reference(int(n)) == record for n, record in zip(numbers, content))  # noqa: B905
        else:
            same = np.array_equal(self._reference[numbers], content)
        if not same:
            raise WrongOutput("samples do not match their labels")

    def judge(self) -> None:
        """Check the whole epoch.

        Raises:
            WrongOutput: a sample is missing, or occurs twice; or the pixels differ from the case.
        """
        numbers = np.concatenate(self._numbers) if self._numbers else np.empty(0, np.int64)
        self._check_numbers(numbers)
        if self._case.images:
            found = np.concatenate(self._features)
            image = numbers % len(next(iter(self._reference.values())))
            {
                "random": self._check_random,
                "window": self._check_windows,
                "centre": self._check_fixed,
                "none": self._check_fixed,
            }[self._case.crop](found, image)

    def _check_numbers(self, numbers: Any) -> None:
        case = self._case
        total, wanted = int(numbers.sum()), case.samples * (case.samples - 1) // 2
        counts = np.bincount(numbers[(numbers >= 0) & (numbers < case.samples)], minlength=case.samples)
        if total != wanted or len(numbers) != case.samples or (counts != 1).any():
            raise WrongOutput(
                f"an epoch has {len(numbers)} samples with label sum {total}, not {case.samples} with {wanted}: "
                f"{int((counts == 0).sum())} are missing, {int((counts > 1).sum())} occur more than once"
            )
        in_order = bool((np.diff(numbers) == 1).all())
        if case.shuffle and in_order:
            raise WrongOutput("the samples are in the order of the file, not shuffled")
        if not case.shuffle and not in_order:
            raise WrongOutput("the samples are not in the order of the file")

    def _check_random(self, found: Any, image: Any) -> None:
        """Check crops: correct on average, as different from each other as the reference's, half of them mirrored."""
        mean, spread = self._reference["mean"][image], self._reference["std"][image]
        noise = 4.0 / math.sqrt(len(found))
        off = found - mean
        typical = math.sqrt(float((spread[:, :3] ** 2).mean()))
        among, repeats = _spread_within(found[:, :3], spread[:, :3], image)
        if repeats >= _LEAST_REPEATS and abs(among - 1) > _SPREAD + 4.0 / math.sqrt(repeats):
            raise WrongOutput(
                f"crops of one image differ {among:.2f} times as much as the reference's: "
                "images are not cropped, or the crops have other sizes"
            )
        for name, column in (("red", 0), ("green", 1), ("blue", 2)):
            bias = float(off[:, column].mean())
            allowed = _BIAS + noise * float(np.sqrt((spread[:, column] ** 2).mean()))
            if abs(bias) > allowed:
                raise WrongOutput(
                    f"{name}: {bias:+.1f} grey levels from the reference, allowed {allowed:.1f}"
                )
        share = math.sqrt(float((off[:, :3] ** 2).mean())) / typical
        if share > 1 + _SPREAD + noise:
            raise WrongOutput(
                f"images differ {share:.2f} times as much as the reference's crops from the images of their labels"
            )
        upright, scatter = _share_of(found[:, 4], mean[:, 4], spread[:, 4])
        if abs(upright - 1) > _SPREAD + noise * scatter:
            raise WrongOutput("the images are not upright, or their crops are at other places")
        leaning, scatter = _share_of(found[:, 3], mean[:, 3], np.hypot(spread[:, 3], mean[:, 3]))
        if self._case.flip and abs(leaning) > _MIRRORED + noise * scatter:
            raise WrongOutput(f"{(1 - leaning) / 2:.0%} of the images are mirrored, not half of them")

    def _check_windows(self, found: Any, image: Any) -> None:
        """Check windows: each is part of the image of its label, at uniformly drawn places, half of them mirrored."""
        places: list[Any] = []
        for number in np.unique(image):
            finder = WindowFinder(self._reference["small"][number].astype(np.float32), found.shape[1:3])
            for window in found[image == number]:
                place = finder.find(window)
                places.append((place, np.abs(place.colour - window.mean(axis=(0, 1)))))
        scores = np.array([place.score for place, _ in places])
        share = float((scores >= _WINDOW_SCORE).mean())
        if share < _WINDOW_SHARE:
            raise WrongOutput(
                f"{share:.0%} of the windows are found in the images of their labels, required {_WINDOW_SHARE:.0%}: "
                "they are of other images, resized, or not upright"
            )
        for name, off in zip(("red", "green", "blue"), np.array([each for _, each in places]).T):  # noqa: B905
            worst = float(np.percentile(off, 95))
            if worst > _DETERMINISTIC:
                raise WrongOutput(f"{name}: up to {worst:.1f} grey levels from the reference")
        noise = 4.0 / math.sqrt(len(places))
        mirrored = float(np.mean([place.mirrored for place, _ in places]))
        if abs(mirrored - (0.5 if self._case.flip else 0.0)) > (noise / 2 if self._case.flip else 0.0):
            raise WrongOutput(f"{mirrored:.0%} of the images are mirrored, not half of them")
        for name, shares in (
            ("left", np.array([place.x for place, _ in places])),
            ("upper", np.array([place.y for place, _ in places])),
        ):
            # The deviation of uniform shares is 1 / sqrt(12), and that of its estimate less than the noise of the mean.
            deviation = 1 / math.sqrt(12)
            if (
                abs(float(shares.mean()) - 0.5) > noise * deviation
                or abs(float(shares.std()) - deviation) > noise * deviation
            ):
                raise WrongOutput(f"the {name} borders of the windows are not drawn uniformly")

    def _check_fixed(self, found: Any, image: Any) -> None:
        """Check images without random crops: every image has the reference's features, mirrored or not."""
        mean = self._reference["mean"][image]
        for name, column in (("red", 0), ("green", 1), ("blue", 2), ("upper less lower half", 4)):
            worst = float(np.percentile(np.abs(found[:, column] - mean[:, column]), 95))
            if worst > _DETERMINISTIC:
                raise WrongOutput(f"{name}: up to {worst:.1f} grey levels from the reference")
        if not self._case.flip:
            worst = float(np.percentile(np.abs(found[:, 3] - mean[:, 3]), 95))
            if worst > _DETERMINISTIC:
                raise WrongOutput(f"left less right half: up to {worst:.1f} grey levels from the reference")
            return
        clear = np.abs(mean[:, 3]) > 2 * _DETERMINISTIC
        if not clear.any():
            return
        mirrored = float((found[clear, 3] * mean[clear, 3] < 0).mean())
        if abs(mirrored - 0.5) > _MIRRORED / 2 + 2.0 / math.sqrt(int(clear.sum())):
            raise WrongOutput(f"{mirrored:.0%} of the images are mirrored, not half of them")


def _spread_within(found: Any, spread: Any, image: Any) -> tuple[float, int]:
    """Return the spread of samples of one image, as a multiple of the expected one, and how many repeat an image."""
    count = np.bincount(image)
    twice = count[image] > 1
    found, spread, image = found[twice], spread[twice], image[twice]
    repeats = len(found) - len(np.unique(image))
    if not repeats:
        return 1.0, 0
    # n - 1: with few samples of an image their mean is too close to them.
    correction = count[image] / (count[image] - 1)
    variance = 0.0
    for column in found.T:
        centre = np.bincount(image, column, len(count)) / np.maximum(count, 1)
        variance += float((correction * (column - centre[image]) ** 2).mean())
    return math.sqrt(variance / float((spread**2).mean(axis=0).sum())), repeats


def _share_of(found: Any, mean: Any, spread: Any) -> tuple[float, float]:
    """Return the share of a feature's expectation over all samples, and its standard deviation for one sample."""
    power = float((mean**2).mean())
    if not power:
        return 1.0, math.inf
    return float((found * mean).mean()) / power, math.sqrt(float((mean**2 * spread**2).mean())) / power


def _kind(value: Any) -> str:
    size = f" of length {len(value)}" if hasattr(value, "__len__") else ""
    return f"{type(value).__name__}{size}"
