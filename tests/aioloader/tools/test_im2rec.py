"""Tests of im2rec: MXNet's command lines make MXNet's files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import aioloader
import recordio
from aioloader.tools.im2rec import main, part_of_lines
from aioloader.tools.rec2idx import main as rec2idx
from tests.cases import with_cases

DATA = Path(__file__).parents[2] / "data" / "mxnet"
SOURCE = str(DATA / "im2rec_src")


def records(path: Path) -> list[tuple[recordio.IRHeader, bytes]]:
    with recordio.RecordReader(path) as reader:
        return [recordio.unpack(record) for record in reader]


def same_file(made: Path, name: str) -> bool:
    return made.read_bytes() == (DATA / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "source", "printed"),
    [
        ("folder", "im2rec_src", "ant 0\ncat 1\ndog 2\n"),
        ("nested", "im2rec_nested_src", ". 0\ndog 1\ndog/sub 2\n"),
    ],
)
def test_a_list_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, source: str, printed: str
) -> None:
    assert main(["--list", "--recursive", "--no-shuffle", str(tmp_path / name), str(DATA / source)]) == 0
    assert same_file(tmp_path / f"{name}.lst", f"{name}.lst")
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    "switches",
    [
        ["--list", "--recursive"],
        ["--list=1", "--recursive=1", "--shuffle=1"],
        ["--list", "True", "--recursive", "true", "--shuffle", "yes"],
        ["--li", "--recur", "--no-shuffle=0"],
    ],
)
def test_a_mixed_list_in_all_forms_of_switches(tmp_path: Path, switches: list[str]) -> None:
    assert main([*switches, str(tmp_path / "mixed"), SOURCE]) == 0
    assert same_file(tmp_path / "mixed.lst", "folder_shuffled.lst")


def test_split_lists(tmp_path: Path) -> None:
    arguments = ["--list", "--recursive", "--train-ratio", "0.5", "--test-ratio", "0.25"]
    assert main([*arguments, str(tmp_path / "split"), SOURCE]) == 0
    for part in ("train", "val", "test"):
        assert same_file(tmp_path / f"split_{part}.lst", f"folder_split_{part}.lst")


@pytest.mark.parametrize("threads", [[], ["--num-thread=4"], ["--num-thread", "1"]])
def test_records_of_the_same_bytes(tmp_path: Path, threads: list[str]) -> None:
    shutil.copy(DATA / "folder.lst", tmp_path)
    assert main(["--pass-through", *threads, str(tmp_path / "folder"), SOURCE]) == 0
    assert same_file(tmp_path / "folder.rec", "folder.rec")
    assert same_file(tmp_path / "folder.idx", "folder.idx")


def test_several_labels_cropped_and_made_smaller(tmp_path: Path) -> None:
    shutil.copy(DATA / "multilabel.lst", tmp_path)
    arguments = ["--pack-label", "--encoding", ".png", "--quality", "9", "--resize", "16", "--center-crop"]
    assert main([*arguments, str(tmp_path / "multilabel"), SOURCE]) == 0
    assert list(recordio.Index.open(tmp_path / "multilabel.idx").keys) == [0, 7, 3]
    made, wanted = records(tmp_path / "multilabel.rec"), records(DATA / "multilabel.rec")
    for (header, body), (golden, golden_body) in zip(made, wanted, strict=True):
        assert header.label.tolist() == golden.label.tolist()
        assert (header.flag, header.id, header.id2) == (golden.flag, golden.id, golden.id2)
        image, golden_image = (
            cv2.imdecode(np.frombuffer(data, np.uint8), -1) for data in (body, golden_body)
        )
        lossy = header.id != 7  # JPEG decoders differ a little
        assert np.abs(image.astype(int) - golden_image.astype(int)).max() <= (3 if lossy else 0)


def test_only_the_first_label_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(DATA / "multilabel.lst", tmp_path)
    assert main(["--pass-through", str(tmp_path / "multilabel"), SOURCE]) == 0
    assert [header.label for header, _ in records(tmp_path / "multilabel.rec")] == [0.0, 1.0, 2.0]
    assert "--pack-label" in capsys.readouterr().err


@pytest.mark.parametrize("threads", ["1", "3"])
def test_bad_images_and_lines_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], threads: str
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/bad.png").write_bytes(b"no image")
    shutil.copy(Path(SOURCE, "cat", "a.png"), tmp_path / "root/good.png")
    (tmp_path / "set.lst").write_text("5\t1\tbad.png\nnonsense\n6\t2\tmissing.png\n7\t3\tgood.png\n")
    arguments = ["--num-thread", threads, str(tmp_path / "set"), str(tmp_path / "root")]
    assert main(arguments) == 0
    assert [(header.id, header.label) for header, _ in records(tmp_path / "set.rec")] == [(7, 3.0)]
    said = capsys.readouterr().err
    assert all(word in said for word in ("bad.png", "missing.png", "line 2", "2 were skipped"))
    before = (tmp_path / "set.rec").read_bytes()
    assert main(["--on-error", "raise", *arguments]) == 1
    assert "bad.png" in capsys.readouterr().err
    assert (tmp_path / "set.rec").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "set.idx", "set.lst", "set.rec"]


def test_lists_of_another_prefix_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("r.lst", "r_train.lst", "road.lst"):
        shutil.copy(DATA / "folder.lst", tmp_path / name)
    assert main(["--pass-through", str(tmp_path / "r"), SOURCE]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.rec")) == ["r.rec", "r_train.rec"]
    assert "road.lst is ignored" in capsys.readouterr().err
    assert main(["--pass-through", str(tmp_path / "roa"), SOURCE]) == 0
    assert (tmp_path / "road.rec").exists()


def test_a_folder_of_lists(tmp_path: Path) -> None:
    for name in ("a.lst", "b.lst"):
        shutil.copy(DATA / "folder.lst", tmp_path / name)
    assert main(["--pass-through", str(tmp_path), SOURCE]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.rec")) == ["a.rec", "b.rec"]


def test_nothing_to_do_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none"), SOURCE]) == 1
    assert "Did not find and list file with prefix" in capsys.readouterr().out
    assert main(["--list", str(tmp_path / "none"), SOURCE]) == 1
    assert "--recursive" in capsys.readouterr().err
    assert main(["--list", str(tmp_path / "none"), str(tmp_path / "nowhere")]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--list=maybe", "p", "r"], "neither yes"),
        (["--quality", "0", "p", "."], "quality"),
        (["--resize", "-1", "p", "."], "resize"),
        (["--num-thread", "0", "p", "."], "--num-thread"),
        (["p"], "required"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code in (1, 2)
    assert said in capsys.readouterr().err


def image_file(path: Path, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(
        str(path), np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    )


@with_cases(("height", "width"), [(40, 31), (31, 40), (20, 20), (8, 60)])
@with_cases("crop", [False, True])
@with_cases("color", ["1", "0", "-1"])
def test_pixels_are_those_of_the_same_steps_in_opencv(
    tmp_path: Path, height: int, width: int, crop: bool, color: str
) -> None:
    image_file(tmp_path / "root/a.png", height, width)
    (tmp_path / "set.lst").write_text("0\t0\ta.png\n")
    arguments = [
        "--resize",
        "24",
        "--encoding",
        ".png",
        "--color",
        color,
        *(["--center-crop"] if crop else []),
    ]
    assert main([*arguments, str(tmp_path / "set"), str(tmp_path / "root")]) == 0
    wanted = cv2.imread(str(tmp_path / "root/a.png"), int(color))
    assert wanted is not None
    if crop:
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        wanted = wanted[top : top + side, left : left + side]
    h, w = wanted.shape[:2]
    wanted = cv2.resize(wanted, (24, h * 24 // w) if h > w else (w * 24 // h, 24))
    ((_, body),) = records(tmp_path / "set.rec")
    assert np.array_equal(cv2.imdecode(np.frombuffer(body, np.uint8), -1), wanted)


@pytest.mark.parametrize(
    ("place", "replaced", "said"),
    [
        (b"IHDR", (60_000).to_bytes(4, "big") * 2, "60000 x 60000"),
        (b"IDAT", b"\xff\0\0\0", "a chunk is longer than the data"),
    ],
    ids=["pixels", "bytes"],
)
def test_an_image_that_would_take_memory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: bytes, replaced: bytes, said: str
) -> None:
    image_file(tmp_path / "root/a.png", 4, 4)
    data = bytearray((tmp_path / "root/a.png").read_bytes())
    begin = data.index(place) + (4 if place == b"IHDR" else -4)  # its extents, or its length
    data[begin : begin + len(replaced)] = replaced
    (tmp_path / "root/a.png").write_bytes(data)
    (tmp_path / "set.lst").write_text("0\t0\ta.png\n")
    assert main([str(tmp_path / "set"), str(tmp_path / "root")]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0 0 a.png\n1 0 a.png\n", "0\tcat\ta.png\n"])
@pytest.mark.parametrize("plain", [False, True], ids=["list", "c++"])
def test_a_list_of_which_all_lines_are_skipped_is_an_error(
    text: str, plain: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image_file(tmp_path / "root/a.png", 4, 4)
    lst = tmp_path / "set.lst"
    lst.write_text(text.replace("0 0 a", "x 0 a").replace("1 0 a", "y 0 a") if plain else text)
    words = [str(lst), f"{tmp_path}/root", str(tmp_path / "set.rec")]
    assert main(words if plain else [str(tmp_path / "set"), words[1]]) == 1
    assert "so no record file is written" in capsys.readouterr().err
    assert not (tmp_path / "set.rec").exists()


def test_labels_that_records_cannot_have_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image_file(tmp_path / "root/a.png", 4, 4)
    (tmp_path / "set.lst").write_text("0\t16777217\ta.png\n1\t16777216\ta.png\n")
    assert main([str(tmp_path / "set"), str(tmp_path / "root")]) == 0
    told = capsys.readouterr().err
    assert "the label of the id 0 is 16777217, which float32 cannot store exactly" in told
    assert "id 1" not in told


def test_a_list_of_which_nothing_can_be_packed_replaces_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "set.rec").write_bytes(b"what was there")
    (tmp_path / "set.lst").write_text("0\t0\tmissing.png\n1\t0\tmissing-too.png\n")
    assert main([str(tmp_path / "set"), str(tmp_path)]) == 1
    assert "none of the 2 images" in capsys.readouterr().err
    assert (tmp_path / "set.rec").read_bytes() == b"what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.lst", "set.rec"]


def test_an_empty_list_gives_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "set_val.lst").write_text("")
    assert main([str(tmp_path / "set"), str(tmp_path)]) == 0
    assert records(tmp_path / "set_val.rec") == []


# -- the program in C++ ------------------------------------------------------------------------------------------------


def test_keywords_and_several_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image_file(tmp_path / "root/two words.png", 30, 50)
    (tmp_path / "image.lst").write_text("4 1 2 3 4 two words.png\nnonsense\n\n")
    command = [str(tmp_path / "image.lst"), str(tmp_path / "root"), str(tmp_path / "output.bin"), "resize=20"]
    assert main([*command, "label_width=4", "pack_label=1", "encoding=.png", "colour=1"]) == 0
    ((header, body),) = records(tmp_path / "output.bin")
    assert (header.flag, header.label.tolist(), header.id) == (4, [1, 2, 3, 4], 4)
    assert cv2.imdecode(np.frombuffer(body, np.uint8), -1).shape == (20, 33, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.lst", "output.bin", "root"]
    said = capsys.readouterr().err
    assert "colour=1" in said
    assert "line 2" in said
    assert main([*command, "label_width=4", "unchanged=1"]) == 0
    ((header, body),) = records(tmp_path / "output.bin")
    assert (header.flag, header.label) == (0, 1.0)
    assert body == (tmp_path / "root/two words.png").read_bytes()


def test_a_root_that_is_no_folder_is_put_before_the_paths(tmp_path: Path) -> None:
    image_file(tmp_path / "img_7.png", 4, 4)
    (tmp_path / "image.lst").write_text("7 1 7.png\n")
    assert main([str(tmp_path / "image.lst"), str(tmp_path / "img_"), str(tmp_path / "o.rec")]) == 0
    assert [header.id for header, _ in records(tmp_path / "o.rec")] == [7]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["label_width=2"], "set label_width"),
        (["pack_label=1"], "label_width of more than 1"),
        (["inter_method=7"], "inter_method"),
        (["nsplit=2", "part=2"], "part must"),
        (["resize=big"], "whole number"),
        (["encoding=.gif"], "encoding"),
        (["color=3"], "color"),
    ],
)
def test_wrong_keywords(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image_file(tmp_path / "a.png", 4, 4)
    (tmp_path / "image.lst").write_text("0 1 a.png\n")
    assert main([str(tmp_path / "image.lst"), str(tmp_path), str(tmp_path / "o.rec"), *words]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "o.rec").exists()


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_hold_every_line_once(parts: int) -> None:
    lines = [b"x" * length + b"\n" for length in (3, 0, 9, 1, 20, 2, 2, 2, 5)]
    found = [line for part in range(parts) for line in part_of_lines(b"".join(lines), part, parts)]
    assert found == lines


def test_parts_are_files_of_their_own(tmp_path: Path) -> None:
    image_file(tmp_path / "a.png", 4, 4)
    (tmp_path / "image.lst").write_text("".join(f"{key} 1 a.png\n" for key in range(10)))
    for part in range(3):
        words = ["nsplit=3", f"part={part}", "unchanged=1"]
        assert main([str(tmp_path / "image.lst"), str(tmp_path), str(tmp_path / "o.rec"), *words]) == 0
    ids = [header.id for part in range(3) for header, _ in records(tmp_path / f"o.rec.part{part:03d}")]
    assert ids == list(range(10))


# -- rec2idx -----------------------------------------------------------------------------------------------------------


def test_rec2idx_numbers_the_records(tmp_path: Path) -> None:
    out = tmp_path / "folder.idx"
    assert rec2idx([str(DATA / "folder.rec"), str(out)]) == 0
    assert out.read_bytes() == (DATA / "folder.idx").read_bytes()
    assert rec2idx([str(DATA / "headers.rec"), str(out)]) == 0
    assert list(recordio.Index.open(out).keys) == list(range(11))


def test_nothing_overwrites_what_it_is_made_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rec, lst = (Path(shutil.copy(DATA / f"folder.{ending}", tmp_path)) for ending in ("rec", "lst"))
    assert rec2idx([str(rec), str(tmp_path / "." / "folder.rec")]) == 2
    assert main([str(lst), SOURCE, str(lst)]) == 1
    assert capsys.readouterr().err.count("would overwrite") == 2
    assert same_file(rec, "folder.rec")
    assert same_file(lst, "folder.lst")


def test_rec2idx_of_no_file_and_of_a_damaged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rec2idx([str(tmp_path / "none.rec"), str(tmp_path / "none.idx")]) == 2
    (tmp_path / "bad.rec").write_bytes((DATA / "folder.rec").read_bytes()[:-9])
    assert rec2idx([str(tmp_path / "bad.rec"), str(tmp_path / "bad.idx")]) == 1
    assert capsys.readouterr().err.count("rec2idx: error:") == 2
    assert not (tmp_path / "bad.idx").exists()


def test_both_run_as_modules_and_the_loader_reads_what_they_make(tmp_path: Path) -> None:
    shutil.copy(DATA / "folder.lst", tmp_path)
    python = [sys.executable, "-W", "error", "-m"]
    command = [*python, "aioloader.tools.im2rec", "--resize", "32", str(tmp_path / "folder"), SOURCE]
    subprocess.run(command, check=True, capture_output=True)
    command = [*python, "aioloader.tools.rec2idx", str(tmp_path / "folder.rec"), str(tmp_path / "folder.idx")]
    subprocess.run(command, check=True, capture_output=True)
    dataset = aioloader.ImageRecordDataset(tmp_path / "folder.rec")
    assert [(min(dataset[i][0].shape[:2]), int(dataset[i][1])) for i in range(4)] == [
        (32, 0),
        (32, 1),
        (32, 1),
        (32, 2),
    ]
