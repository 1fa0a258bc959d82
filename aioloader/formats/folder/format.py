"""Folders of images, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from aioloader.formats.folder.dataset import ImageFolderDataset


class FolderFormat(Format):
    """Folders with one sub-folder of images for each class; what a folder is taken for if no other format fits."""

    name = "image folder"
    has_fields = False
    text = "folders with one sub-folder of images for each class"
    noun = "images"
    is_folder = True

    def dataset(self) -> type[ImageFolderDataset]:
        """Return `ImageFolderDataset`."""
        from aioloader.formats.folder.dataset import ImageFolderDataset

        return ImageFolderDataset


FORMAT = FolderFormat()
