"""Tests of a fused chain's memory, the inputs of foreign code, stage times, and scaled decoding."""

import cv2
import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.errors import DecodeError
from aioloader.foundation.types import StageTimer
from aioloader.rng import Rng
from aioloader.transforms.fused import ImagePlan
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.samples import encode, make_image, oriented
from tests.aioloader.transforms.fusing import TENSOR, apart, check, images, make
from tests.cases import with_cases


class TestForeignCode:
    """Foreign callables may keep their input forever."""

    @with_cases("name", ["jpeg-420", "restarts-420", "raw", "png", "exif-6"])
    @with_cases(
        "before",
        [
            *([], [t.RandomCrop(16)], [t.RandomResizedCrop(16)], [t.RandomHorizontalFlip(1.0)]),
            [t.Resize((20, 20)), t.CenterCrop(16)],
        ],
    )
    @with_cases("own_stage", [False, True])
    def test_kept_images_stay(self, name, before, own_stage):
        kept, copies = [], []

        def keep(x):
            kept.append(x)
            copies.append(x.copy())
            return x

        after = [t.RandomHorizontalFlip(1.0), *TENSOR]
        parts = [[*before], [keep, *after]] if own_stage else [[*before, keep, *after]]
        plan = make([t.Compose(part) for part in parts])
        memory = bytearray(images()[name])
        shape = plan(memoryview(memory), None, Rng(3), None, StageTimer([0.0] * len(parts))).shape
        out = np.empty(shape, np.float32)
        for index in range(8):
            plan(memoryview(memory), None, Rng(3, 0, index), out, StageTimer([0.0] * len(parts)))
        memory[:] = bytes(len(memory))
        for x, copy in zip(kept, copies, strict=True):
            assert np.array_equal(x, copy)

    def test_a_view_of_borrowed_memory_does_not_get_out_if_foreign_code_follows(self):
        memory = bytearray(images()["raw"])
        for stages in ([], [("crop", t.RandomCrop(16))]):
            image = ImagePlan(LazyImageReader(), stages, lend=False)(
                memoryview(memory), None, Rng(3), None, StageTimer([0.0])
            )
            assert not np.may_share_memory(image, np.frombuffer(memory, np.uint8))


class TestTheRow:
    """The result is written directly to the row, without a copy."""

    @with_cases("name", ["jpeg-420", "restarts-420", "large", "exif-6", "progressive", "raw"])
    @with_cases(
        "chain",
        [
            [t.RandomResizedCrop(16), t.RandomHorizontalFlip()],
            [t.RandomResizedCrop(16), t.RandomHorizontalFlip(), t.ColorJitter(0.4, 0.4, 0.4)],
            [t.RandomResizedCrop(16), t.RandomHorizontalFlip(1.0), *TENSOR],
            [t.RandomCrop(16), t.RandomHorizontalFlip(1.0)],
            [t.RandomCrop(16), *TENSOR],
            [t.Resize((20, 20)), t.CenterCrop(16), *TENSOR],
            [t.Resize((20, 20)), t.RandomHorizontalFlip()],
        ],
    )
    def test_holds_the_result(self, chain, name):
        plan = make([t.Compose(chain)])
        shape, dtype = (made := plan(images()[name], None, Rng(3), None, StageTimer([0.0]))).shape, made.dtype
        rows = np.zeros((2, *shape), dtype)
        assert plan(images()[name], None, Rng(3), rows[1], StageTimer([0.0])) is not None
        again = plan(images()[name], None, Rng(3), row := rows[1], StageTimer([0.0]))
        assert again is row
        assert not rows[0].any()

    @pytest.mark.parametrize("chain", [[], [t.RandomHorizontalFlip(1.0)]], ids=["nothing", "flip"])
    def test_is_decoded_into(self, chain):
        row = np.zeros((53, 61, 3), np.uint8)
        plan = make([t.Compose(chain)] if chain else [])
        assert plan(images()["jpeg-420"], None, Rng(0), row, StageTimer([0.0])) is row

    def test_is_not_touched_where_foreign_code_follows(self):
        row = np.zeros((16, 16, 3), np.uint8)
        stages = [("crop", t.RandomResizedCrop(16))]
        plan = ImagePlan(LazyImageReader(), stages, lend=False)
        plan(images()["jpeg-420"], None, Rng(3), row, StageTimer([0.0]))
        assert not row.any()


class TestStages:
    def test_time_is_reported_by_stage(self):
        plan = make([t.RandomResizedCrop(32), t.Compose([]), t.Compose([*TENSOR])])
        trace = StageTimer([0.0] * 3)
        plan(images()["large"], None, Rng(0), None, trace)
        assert trace.decode_s > 0
        assert trace.transforms[0] > 0
        assert trace.transforms[1] == 0
        assert trace.transforms[2] > 0

    @pytest.mark.parametrize(
        ("stages", "data", "stage"),
        [
            ([t.RandomResizedCrop(8)], b"never", "decode"),
            ([t.CropResize(1, 1, 1, 999)], encode(61, 53), "transform:last"),
            ([t.RandomResizedCrop(8), t.Normalize((1, 2), 1)], encode(61, 53), "transform:last"),
            ([t.Normalize((1, 2), 1), t.RandomResizedCrop(8)], encode(61, 53), "transform:first"),
        ],
    )
    def test_an_error_has_its_stage(self, stages, data, stage):
        trace = StageTimer([0.0] * len(stages))
        with pytest.raises((DecodeError, ValueError)):
            make(stages)(data, None, Rng(0), None, trace)
        assert trace.stage == stage


class TestScaling:
    """Scaled decoding changes pixels a little, and happens only on request."""

    @with_cases(("orientation", "restart"), zip(range(1, 9), [0, 4] * 4, strict=True))
    @with_cases(
        "chain",
        [
            [t.CropResize(24, 40, 304, 352, 64, "area")],
            [t.CropResize(24, 40, 304, 352, 30, "area")],
            [t.Resize((50, 40), interpolation="area")],
            [t.Resize(128, interpolation="area"), t.CenterCrop(112)],
        ],
    )
    def test_it_is_almost_the_same(self, chain, orientation, restart):
        # Smooth, because an image of independent pixels differs when it is scaled; the crops begin and
        # end with blocks, so that they have the same edges at every scale.
        soft = cv2.resize(make_image(20, 18, blocks=False), (640, 560), interpolation=cv2.INTER_CUBIC)
        options = [cv2.IMWRITE_JPEG_RST_INTERVAL, restart]
        data = oriented(cv2.imencode(".jpg", soft, options)[1].tobytes(), orientation)
        stages = [t.Compose(chain)]
        expected = apart(data, stages, Rng(0), {}).astype(int)
        found = make(stages, dct_scaling=True)(data, None, Rng(0), None, StageTimer([0.0]))
        assert found.shape == expected.shape
        assert not np.array_equal(found, expected)
        assert np.abs(found - expected).mean() < 4
        again = make(stages, dct_scaling=True)(data, None, Rng(0), np.zeros_like(found), StageTimer([0.0]))
        assert np.array_equal(again, found)

    @pytest.mark.parametrize("name", ["large", "png", "raw", "progressive", "truncated"])
    def test_nothing_changes_where_it_does_not_apply(self, name):
        stages = [t.Compose([t.RandomResizedCrop(150), t.RandomHorizontalFlip()])]
        check(images()[name], stages, plan=make(stages, dct_scaling=True))

    def test_a_crop_that_is_not_resized_is_exact(self):
        stages = [t.CropResize(4, 3, 40, 50)]
        check(images()["large"], stages, plan=make(stages, dct_scaling=True))
