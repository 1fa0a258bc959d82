"""Fields of the rows of tables, which a worker decodes from the items of a block source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.datasets.fields import FieldKind
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.storage.blocks.columns import Column, ColumnKind
from aioloader.storage.blocks.item import split_item

if TYPE_CHECKING:
    from aioloader.foundation.types import ItemLocation

_VIEWS = (ColumnKind.BYTES, ColumnKind.FILE)


@dataclass(frozen=True)
class RowReader:
    """Reader of the fields of a row; implements `aioloader.datasets.fields.FieldReader`.

    Attributes:
        columns: columns of an item, in order.
        images: names of the columns that are encoded images.
    """

    columns: tuple[Column, ...]
    images: frozenset[str]

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields: views of images, other bytes as bytes, None where there is no value.

        Args:
            data: the item.
            extra: not used.
            location: of the row, for errors.
            names: of the fields.

        Raises:
            MissingFieldError: the item has no such column.
            SampleFormatError: the item is damaged.
        """
        try:
            fields = split_item(data)
            if len(fields) != len(self.columns):
                raise ValueError(
                    f"the item has {len(fields)} fields, and {len(self.columns)} columns were read"
                )
            found = {column.name: place for place, column in enumerate(self.columns)}
            return [self._value(fields, found[name]) for name in names]
        except KeyError as error:
            known = [column.name for column in self.columns]
            raise MissingFieldError(str(error.args[0]), known, path=location.path, key=location.key) from None
        except ValueError as error:
            raise SampleFormatError(
                f"the row is damaged: {error}", path=location.path, key=location.key
            ) from None

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    def _value(self, fields: list[memoryview | None], place: int) -> Any:
        column, data = self.columns[place], fields[place]
        value = None if data is None else column.value(data)
        if value is None or column.name in self.images:
            return value
        if column.kind in _VIEWS:
            return bytes(value)
        if column.kind is ColumnKind.FILES:
            return [None if each is None else bytes(each) for each in value]
        return value

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        return FieldKind.IMAGE if name in self.images else FieldKind.VALUE
