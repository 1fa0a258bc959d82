"""Folders of images, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.collection import Collection
    from aioloader.formats.folder.dataset import ImageFolderDataset


class FolderFormat(Format):
    """Folders with one sub-folder of images for each class; what a folder is taken for if no other format fits."""

    name = "image folder"
    has_fields = False
    text = "folders with one sub-folder of images for each class"
    noun = "images"
    is_folder = True
    folder_text = "a folder with one sub-folder per class"

    def dataset(self) -> type[ImageFolderDataset]:
        """Return `ImageFolderDataset`."""
        from aioloader.formats.folder.dataset import ImageFolderDataset

        return ImageFolderDataset

    def collection(self, paths: Sequence[str], *, path: str, max_pixels: int | None) -> Collection:
        """Return the images of the folder."""
        from aioloader.formats.folder.view import ImageFolder

        return ImageFolder(paths[0], max_pixels=max_pixels)


FORMAT = FolderFormat()
