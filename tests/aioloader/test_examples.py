"""Tests of the programs in examples/ that need no accelerator: run unchanged, against real servers."""

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def example(name):
    """Load an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_example(name, *arguments, **options):
    """Run an example as a program."""
    return subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        **{"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True, **options},
        timeout=280,
        check=False,
    )


@pytest.fixture
def drawn(tmp_path):
    """Make a folder of a few drawn images in two classes."""
    from aioloader.tools.draw import draw_folder

    draw_folder(tmp_path / "drawn", count=24, classes=3, seed=1)
    return tmp_path / "drawn"


@pytest.mark.slow
def test_a_trainer_that_is_stopped_and_goes_on_learns_the_same(drawn, tmp_path):
    trainer = example("async_trainer")
    asked = made = 0
    step = trainer.Model.step

    def counted(model, *batch):
        nonlocal made
        made += 1
        return step(model, *batch)

    trainer.Model.step = counted

    async def serve(reader, writer):
        nonlocal asked
        asked += 1
        await trainer.serve_captions(reader, writer)

    async def main():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as service:
            address = service.sockets[0].getsockname()

            def train(name):
                return trainer.train(drawn, tmp_path / name, 3, address, workers=1)

            whole = await train("whole.json")
            assert whole["steps"] == made == 9
            for stop in (made + 2, made + 5):
                task = asyncio.ensure_future(train("parts.json"))
                while made < stop:
                    await asyncio.sleep(0.001)
                task.cancel()  # in the middle of a step, or after it
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await train("parts.json") == whole

    asyncio.run(main())
    whole, parts = (
        json.loads((tmp_path / name).read_text())["weights"] for name in ("whole.json", "parts.json")
    )
    assert whole == parts
    assert made == 18
    assert 0 < asked < 100  # connections are kept


@pytest.mark.slow
def test_the_trainer_as_a_program(drawn, tmp_path):
    done = run_example("async_trainer", drawn, "--epochs", "2", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch=2 steps=6" in done.stdout
    assert not done.stderr


class Served:
    """Starlette application under uvicorn, in a separate thread."""

    def __init__(self, app):
        import uvicorn

        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join()


class Classifier:
    """Server that classifies by pixels; it is busy at the first request for some images, and fails for others."""

    def __init__(self, broken):
        self.broken = broken
        self.seen = set()
        self.busy = self.inside = self.most = 0

    @staticmethod
    def label_of(image):
        return int(image[::8, ::8].astype(np.int64).sum()) % 3

    async def answer(self, request):
        import simplejpeg
        from starlette.responses import JSONResponse, Response

        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            image = simplejpeg.decode_jpeg(await request.body())
            await asyncio.sleep(0.02)
            key = int(image[::8, ::8].sum())
            if key % 3 == 0 and key not in self.seen:
                self.seen.add(key)
                self.busy += 1
                return Response(status_code=503)
            if key in self.broken:
                return Response(status_code=500)
            return JSONResponse({"label": self.label_of(image)})
        finally:
            self.inside -= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # between uvicorn's parts
def test_an_endpoint_is_evaluated(drawn, tmp_path):
    pytest.importorskip("starlette", reason="needs pip install 'aioloader[view]'")
    pytest.importorskip("uvicorn", reason="needs pip install 'aioloader[view]'")
    pytest.importorskip("httpx", reason="the example needs httpx")
    import simplejpeg
    from starlette.applications import Starlette
    from starlette.routing import Route

    import aioloader
    from aioloader.transforms import CenterCrop, Compose, Resize

    evaluation = example("evaluate_endpoint")
    chain = Compose([Resize(72), CenterCrop(64), evaluation.encoded, simplejpeg.decode_jpeg])
    samples = list(aioloader.ImageFolderDataset(drawn).transform_first(chain))
    broken = {int(image[::8, ::8].sum()) for image, _ in samples[5:7]}
    classifier = Classifier(broken)
    with Served(Starlette(routes=[Route("/classify", classifier.answer, methods=["POST"])])) as served:
        found = asyncio.run(evaluation.evaluate(drawn, f"{served.url}/classify", 6, batch_size=4, workers=1))
        nowhere = run_example("evaluate_endpoint", drawn, f"{served.url}/nowhere", "--workers", "1")
    right = [
        classifier.label_of(image) == label for n, (image, label) in enumerate(samples) if n not in (5, 6)
    ]
    assert found["images"] == len(right) == 22
    assert found["accuracy"] == np.mean(right)
    assert len(found["failed"]) == 2
    assert all("500 Internal Server Error" in text for text in found["failed"])
    assert 2 <= classifier.most <= 6
    assert classifier.busy
    assert 0.02 <= found["latency_p50_s"] <= found["latency_p99_s"]
    assert nowhere.stdout.count("404 Not Found") == 24, nowhere.stderr
    assert "images=0" in nowhere.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # warnings of Jupyter's parts are theirs
def test_the_notebook_runs():
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    import nbformat

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # outputs are not kept
    client = nbclient.NotebookClient(notebook, timeout=280, kernel_name="python3")
    client.execute(cwd=str(ROOT), env={**os.environ, "PYTHONPATH": str(ROOT)})
    told = ["".join(out.get("text", "") for out in cell.get("outputs", ())) for cell in notebook.cells]
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert not [out for out in outputs if out.output_type == "error" or out.get("name") == "stderr"]
    text = "".join(told)
    assert text.count("(16, 64, 64, 3)") == 9
    assert "the ticker ran: True" in text
    assert "a drawing of class" in text


def test_a_format_of_another_distribution_is_read_by_every_command(drawn, tmp_path):
    """Install examples/lmdb_format where only the program finds it, and use it from the command line."""
    pytest.importorskip("lmdb", reason="needs pip install lmdb")
    folder = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", folder, EXAMPLES / "lmdb_format"], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}

    def run(*words):
        command, options = (
            [sys.executable, "-m", *words],
            {"capture_output": True, "text": True, "check": True},
        )
        done = subprocess.run(command, env=environment, cwd=tmp_path, **options)
        return done.stdout + done.stderr

    run("aioloader_lmdb", "drawn", "drawn.lmdb")
    assert "LMDB samples" in run("aioloader", "inspect", "drawn.lmdb")
    assert "24 images decoded, all valid" in run("aioloader", "verify", "--decode", "drawn.lmdb")
    assert "24 records of 3 classes" in run("aioloader", "pack", "drawn.lmdb", "out.rec")
    assert "LMDB" in run("aioloader", "doctor")
