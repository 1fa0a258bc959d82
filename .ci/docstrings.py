"""Griffe extension for the reference: converts docstrings from reST's literal blocks, good in `help()`, to Markdown."""

import re
from collections.abc import Iterator
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    """Convert a docstring: drop a literal block's ``::``, and write ``literals`` with one backtick.

    The indented lines of a literal block are code in Markdown too.
    """
    text = re.sub(r"^( *)::\n", r"\1\n", text, flags=re.MULTILINE)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"``([^`\n]+)``", r"`\1`", text)
    return re.sub(r"^(Returns|Yields):\n(?: +.*\n?)+", _as_prose, text, flags=re.MULTILINE)


def _as_prose(section: re.Match[str]) -> str:
    """Escape the colons of a section: the text before one would be read as a type, but it is a sentence."""
    head, _, sentence = section[0].partition("\n")
    return head + "\n" + re.sub(r":(?=\s)", "&#58;", sentence)


class Docstrings(griffe.Extension):
    """Extension that converts every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


class SharedArguments(griffe.Extension):
    """Extension that describes the arguments of a class that has those of another one, as `describe_arguments` does."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for each in _members(pkg):
            if not isinstance(each, griffe.Class) or each.docstring is None:
                continue
            other = re.search(r"All arguments are those of\s+`(\w+)`", each.docstring.value)
            if other is not None:
                source = pkg.modules_collection[each.resolve(other[1])].docstring.value
                arguments = source.partition("\nArgs:\n")[2].partition("\n\n")[0]
                each.docstring.value += f"\n\nArgs:\n{arguments}\n"


class ImportedNames(griffe.Extension):
    """Extension that exports what packages import as itself, where a function makes their ``__all__`` of it."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in (pkg, *_members(pkg)):
            if isinstance(module, griffe.Module) and {"lazy_names", "_exported"}.intersection(module.members):
                module.exports = [
                    name
                    for name, member in module.members.items()
                    if isinstance(member, griffe.Alias)
                    and member.target_path.startswith(("aioloader.", "recordio."))
                    and member.target_path.endswith(f".{name}")
                    and f"{module.path}.{name}" != member.target_path
                    and name not in ("lazy_names", "annotations")
                ]


class NamedOptions(griffe.Extension):
    """Extension that adds the options that the decorators of functions name to their parameters.

    `aioloader.foundation.validation` has both decorators; it does the same for `inspect.signature`.
    """

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        for function in _members(pkg):
            for decorator in function.decorators if isinstance(function, griffe.Function) else ():
                call = decorator.value
                if (
                    isinstance(call, griffe.ExprCall)
                    and call.canonical_path in _DECORATORS
                    and call.arguments
                ):
                    _name_options(function, call, loader)


_DECORATORS = tuple(f"aioloader.foundation.validation.{name}" for name in ("takes", "advises"))


def _members(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Object]:
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield member
        if isinstance(member, (griffe.Module, griffe.Class)):
            yield from _members(member)


def _name_options(function: griffe.Function, call: griffe.ExprCall, loader: griffe.GriffeLoader) -> None:
    takes = call.canonical_path == _DECORATORS[0]
    if not takes and len(call.arguments) < 2:
        return
    options = loader.modules_collection[call.arguments[0 if takes else 1].canonical_path]
    own = [each for each in function.parameters if each.kind is not griffe.ParameterKind.var_keyword]
    own = own[:1] if takes else own
    kind = griffe.ParameterKind.positional_or_keyword if takes else griffe.ParameterKind.keyword_only
    for name, field in options.attributes.items():
        if name == "_":  # the fields after it are keywords
            kind = griffe.ParameterKind.keyword_only
        elif "property" not in field.labels and name not in {each.name for each in own}:
            own.append(griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value))
    function.parameters = griffe.Parameters(*own)
