"""Tests of the programs in examples/ that use the image service: run unchanged, against real servers."""

import ast
import asyncio
import base64
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import aioloader
from tests.aioloader import test_examples
from tests.aioloader.service.images import jpeg
from tests.aioloader.test_examples import EXAMPLES, example

pytestmark = pytest.mark.slow
drawn = test_examples.drawn


@pytest.fixture
def example_endpoint():
    """Import the example."""
    for package in ("starlette", "uvicorn", "PIL"):
        pytest.importorskip(package)
    return example("image_endpoint")


def post(url, value):
    """Post JSON; return the status and the answer."""
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_endpoint_answers_refuses_and_goes_on(tmp_path, leftovers):
    for package in ("starlette", "uvicorn", "PIL"):
        pytest.importorskip(package)
    port, files = free_port(), free_port()
    (tmp_path / "a.jpg").write_bytes(jpeg(300, 400))
    web = ["-m", "http.server", str(files), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    example = [str(EXAMPLES / "image_endpoint.py"), "--port", str(port), "--hosts", f"127.0.0.1:{files}"]
    base = f"http://127.0.0.1:{port}"
    uri, narrow = (
        "data:image/jpeg;base64," + base64.b64encode(jpeg(*extents)).decode()
        for extents in [(200, 300), (1, 300)]
    )
    with (
        subprocess.Popen([sys.executable, *web], stderr=subprocess.DEVNULL) as files_server,
        subprocess.Popen([sys.executable, *example]) as server,
    ):
        try:
            for _ in range(2400):  # the import alone takes half a minute on a busy machine
                try:
                    urllib.request.urlopen(f"{base}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.05)
            status, answer = post(f"{base}/classify", {"images": [uri, f"http://127.0.0.1:{files}/a.jpg"]})
            assert (status, len(answer["brightness"])) == (200, 2)
            assert answer["tokens"] == 77 + 154
            for images, expected, text in [
                ([f"{base}/health"], 422, "image 0: it is not allowed, or cannot be read"),
                (["data:image/png;base64,AAAA"], 422, "image 0: "),
                ([uri, "http://name@127.0.0.1/secret"], 422, "image 1: it is not allowed, or cannot be read"),
                ([uri] * 60, 413, "tokens"),
                (["/etc/passwd"], 422, "not allowed"),
                ([uri, narrow], 422, "300"),
                ([uri] * 65, 400, "64 are allowed"),
                *((malformed, 400, "send JSON") for malformed in ("abc", [], {"a": uri}, [[uri]])),
            ]:
                status, answer = post(f"{base}/classify", {"images": images})
                assert (status, text in answer["error"]) == (expected, True)
            for wrong in (None, [1], {}):
                assert post(f"{base}/classify", wrong)[0] == 400
            assert post(f"{base}/classify", {"images": [uri]})[0] == 200
        finally:
            server.terminate()
            files_server.terminate()


def request_of(messages, headers=()):
    """Return a request whose server sends these messages."""
    from starlette.requests import Request

    waiting = iter(messages)

    async def receive():
        return next(waiting)

    return Request({"type": "http", "method": "POST", "path": "/classify", "headers": headers}, receive)


async def test_a_long_body_is_refused_before_it_is_read(example_endpoint, monkeypatch):
    from starlette.exceptions import HTTPException

    monkeypatch.setattr(example_endpoint, "MAX_BODY", 10)
    part = {"type": "http.request", "body": b"123456", "more_body": True}
    last = {"type": "http.request", "body": b"7890", "more_body": False}
    assert await example_endpoint.read_body(request_of([part, last])) == b"1234567890"
    # By its header alone: the request has no message to read.
    with pytest.raises(HTTPException) as refused:
        await example_endpoint.read_body(request_of([], [(b"content-length", b"11")]))
    assert refused.value.status_code == 413
    # Without a header, at the part that is too much: a third one is not read.
    with pytest.raises(HTTPException) as refused:
        await example_endpoint.read_body(request_of([part, part]))
    assert refused.value.status_code == 413


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (aioloader.ServiceOverloadedError(256, 256), 503),
        (aioloader.ImageTimeoutError("a.jpg", 20, "queue"), 504),
        (aioloader.ImageError("a.jpg", "decode", "no"), 422),
    ],
)
async def test_errors_have_the_statuses_that_the_page_lists(example_endpoint, monkeypatch, error, status):
    async def fail(service, ref):
        raise error

    monkeypatch.setattr(aioloader.AsyncImageService, "probe", fail)
    sent = []

    async def send(message):
        sent.append(message)

    body = iter(({"type": "http.request", "body": json.dumps({"images": ["data:,"]}).encode()},))

    async def receive():
        for message in body:
            return message
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/classify", "headers": [], "query_string": b""}
    await example_endpoint.make_app(None)(scope, receive, send)
    assert sent[0]["status"] == status
    page = (EXAMPLES.parent / "docs" / "images-on-demand.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]
    assert [row[2] for row in rows if f"`{type(error).__name__}`" in row[1] and len(row) == 5] == [
        str(status)
    ]


async def test_a_client_that_goes_away_in_its_upload_is_no_error(example_endpoint):
    app = example_endpoint.make_app(None)
    messages = iter(({"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}))
    sent = []

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/classify", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 200  # nobody receives it


async def test_a_client_that_goes_away_gives_its_work_up(example_endpoint):
    """The work ends at the message that a server sends then, after the body."""
    begun, cancelled = asyncio.Event(), asyncio.Event()
    messages = asyncio.Queue()

    class Request:
        receive = messages.get

    async def work():
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    waiting = asyncio.create_task(example_endpoint.while_connected(Request(), work()))
    await begun.wait()
    messages.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(waiting, 30)
    assert cancelled.is_set()


def test_the_trainer_finds_photographs_whatever_the_case_of_their_names(drawn, tmp_path):
    pytest.importorskip("PIL")
    trainer = example("rollout_trainer")
    photos = sorted(drawn.rglob("*.jp*g"))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(FileNotFoundError, match="no files whose names end in"):
        asyncio.run(trainer.train(other, 3, 2))
    for number, photo in enumerate(photos[:4]):
        (other / f"{number}{('.JPEG', '.jpg', '.JPG', '.jpeg')[number]}").write_bytes(photo.read_bytes())
    assert len(trainer.photographs(other)) == 4
    assert asyncio.run(trainer.train(other, 3, 2))["tokens"] > 0


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("rollout_trainer", ["missing"], "missing is not a folder, or does not exist"),
        ("evaluation_harness", ["bad.jsonl", "--root", "."], "bad.jsonl, line 3: Expecting"),
    ],
)
def test_wrong_arguments_end_in_one_line(name, arguments, text, tmp_path):
    pytest.importorskip("PIL")
    (tmp_path / "bad.jsonl").write_text('{"id": 1, "images": [], "answer": 0}\n\n{"id": 2,\n')
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_the_trainer_makes_each_image_once(drawn, leftovers):
    pytest.importorskip("PIL")
    done = asyncio.run(example("rollout_trainer").train(drawn, 12, 8))
    assert (done["prompts"], done["rollouts"]) == (12, 96)
    assert done["made"] <= 24
    assert done["shared"] >= 96


def test_the_trainer_runs_from_the_command_line_and_leaves_damaged_prompts_out(drawn):
    pytest.importorskip("PIL")
    damaged = next(drawn.rglob("*.jp*g"))
    damaged.write_bytes(damaged.read_bytes()[:200])
    # As in its description, with a folder that is named from here.
    command = [sys.executable, str(EXAMPLES / "rollout_trainer.py"), drawn.name, "--prompts", "24"]
    done = subprocess.run(
        [*command, "--rollouts", "2"], capture_output=True, text=True, check=True, cwd=drawn.parent
    )
    report = ast.literal_eval(done.stdout.splitlines()[-1])
    assert report["prompts"] + report["left_out"] == 24
    assert report["left_out"] == done.stdout.count("was left out") > 0
    assert damaged.name in done.stdout


def test_the_harness_reports_single_images(drawn, tmp_path, leftovers):
    paths = sorted(str(path.relative_to(drawn)) for path in drawn.rglob("*.jp*g"))
    (drawn / "damaged.jpg").write_bytes(b"damaged")
    lines = [{"id": n, "images": [paths[n], paths[n + 1]], "answer": 0} for n in range(10)]
    lines.insert(3, {"id": 99, "images": [paths[0], "damaged.jpg", "../outside.jpg"], "answer": 0})
    lines.insert(5, {"id": 100, "images": [], "answer": 0})
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    report = asyncio.run(example("evaluation_harness").evaluate(file, drawn))
    assert report["answered"] == 10
    assert 0 <= report["right"] <= 10
    failed, empty = report["failed"]
    assert empty == {"id": 100, "errors": ["the question has no images"]}
    assert failed["id"] == 99
    assert "damaged.jpg" in failed["errors"][0]
    assert "outside" in failed["errors"][1]


def test_the_harness_runs_from_the_command_line(drawn, tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"id": 1, "images": ["none.jpg"], "answer": 0}) + "\n", encoding="utf-8")
    command = [sys.executable, str(EXAMPLES / "evaluation_harness.py"), str(file), "--root", str(drawn)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["failed"][0]["id"] == 1
