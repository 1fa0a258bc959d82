"""Folders of images, for the registry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.collection import Collection
    from aioloader.formats.folder.dataset import ImageFolderDataset
    from aioloader.formats.inspection import Inspection, Options


class FolderFormat(Format):
    """Folders with one sub-folder of images for each class; what a folder is taken for if no other format fits."""

    name = "image folder"
    has_fields = False
    text = "folders with one sub-folder of images for each class"
    noun = "images"
    folder_text = "a folder with one sub-folder per class"

    def dataset(self) -> type[ImageFolderDataset]:
        """Return `ImageFolderDataset`."""
        from aioloader.formats.folder.dataset import ImageFolderDataset

        return ImageFolderDataset

    def collection(
        self, paths: Sequence[str], *, path: str, max_pixels: int | None, labelled: bool = True
    ) -> Collection:
        """Return the images of the folder."""
        from aioloader.formats.folder.view import ImageFolder

        return ImageFolder(paths[0], max_pixels=max_pixels, flat=not labelled)

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection:
        """Describe a folder of images, or one image."""
        from aioloader.formats.folder.view import inspect_folder, inspect_image

        return inspect_image(path, options) if os.path.isfile(path) else inspect_folder(path, options)


FORMAT = FolderFormat()
