"""Command `aioloader bench`: measure loading of the user's files."""

from __future__ import annotations

import argparse

from aioloader.cli.console import Commands, positive, seconds


def add(commands: Commands) -> None:
    """Add the command's parser."""
    bench = commands.add_parser(
        "bench",
        help="measure loading of your files with each executor and several numbers of workers",
        description="Measure loading of a data set of any format with each executor and several numbers of workers, "
        "compared with a bare decode loop on the same images.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bench.add_argument(
        "path",
        metavar="PATH",
        help="a .rec, .tar, .tfrecord or .parquet file, a pattern such as 'train-*.tar', an MDS folder, a folder with "
        "one sub-folder per class, or the URL of one",
    )
    bench.add_argument(
        "--image", metavar="NAME", help="field of the image, for formats whose samples have fields"
    )
    bench.add_argument("--label", metavar="NAME", help="field of the label")
    bench.add_argument("--size", type=positive, default=224, metavar="PIXELS", help="side of the images")
    bench.add_argument("--batch-size", type=positive, default=64, metavar="N", help="images per batch")
    bench.add_argument("--eval", action="store_true", help="centre crops in order, as for validation")
    bench.add_argument(
        "--rounds", type=positive, default=3, metavar="N", help="measurements of the best settings"
    )
    bench.add_argument("--seconds", type=seconds, default=2.0, metavar="S", help="duration of a measurement")
    bench.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.formats.opening import recognize
    from aioloader.foundation.host_limits import available_cores
    from aioloader.observability.progress import ProgressBar
    from aioloader.tools.bench import bench, bench_table, default_settings, turns

    recognize(options.path)  # its errors come before the progress bar
    settings = default_settings(available_cores())
    with ProgressBar("measuring", turns(options.rounds, settings), unit="turns") as bar:
        report = bench(
            options.path,
            image=options.image,
            label=options.label,
            size=options.size,
            batch_size=options.batch_size,
            train=not options.eval,
            seconds=options.seconds,
            rounds=options.rounds,
            settings=settings,
            tick=bar.update,
        )
    print(bench_table(report))
    return 0
