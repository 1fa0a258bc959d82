"""Check of the project's English: docstrings' first lines, and phrases that plain technical English does not need.

    python .ci/prose.py                  everything
    python .ci/prose.py PATH...          files or folders
    python .ci/prose.py --summary        only the number of findings in each file
    python .ci/prose.py --messages PATH  string literals of several words (messages), too

There are two rules:

- The docstring of a function, method or property begins with a verb in the imperative ("Return", "Raise", "Wait
  until"). The docstring of a class or module begins with a noun phrase ("Iterator over ...", "Error raised when
  ..."). None begins with a question word. This is checked in the packages of `FIRST_LINES`.
- The phrases of `PHRASES` are not used in documentation, docstrings and comments. Code spans in backticks, code
  blocks, doctests and link targets are not prose and are skipped.

Only the standard library is used. The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent

# Where docstrings' first lines are checked.
FIRST_LINES = ("aioloader", "recordio", "benchmarks")
# Files other than Python's with comments that begin with "#"; a script without an ending is a shell script.
HASH_COMMENTS = (".toml", ".yml", ".yaml", ".sh", "")
# Where phrases are checked.
EVERYTHING = (
    *FIRST_LINES,
    ".ci",
    "examples",
    "docs",
    "changes",
    ".github",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "mkdocs.yml",
    "pyproject.toml",
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


QUESTIONS = _words("what which whether how where who whose whom when why")

# First words that a function's docstring may begin with. A verb that is missing here is added here.
VERBS = _words(
    """
    abort accept acknowledge acquire activate adapt add adjust adopt advance advertise aggregate align allocate
    allow alternate analyse announce answer append apply approximate archive arrange ascribe ask assemble assert
    assign associate assume attach attempt attribute augment authenticate author average avoid await back
    balance bar begin bind blank blend block blur borrow bound box branch break bridge bring broadcast buffer
    build bump bundle bypass cache calculate calibrate call cancel canonicalise canonicalize cap capture carry
    cast catch center centre chain change charge check checkpoint choose chunk claim clamp classify clean clear
    clip clone close coalesce code collapse collate collect colour combine come command commit compact compare
    compile complete compose compress compute concatenate conclude configure confirm connect consider construct
    consult consume contain continue contribute control convert coordinate copy correct count couple cover
    create crop cross cut cycle deactivate debug decide declare decode decompress decorate decrease decrement
    decrypt deduce default defer define delay delegate delete deliver demand demonstrate denormalise denormalize
    derive describe deserialise deserialize detach detect determine develop diagnose differentiate digest
    disable discard disconnect discover dispatch display dispose distinguish distort distribute divide do
    document double download downsample drain draw drive drop dump duplicate edit eject elect eliminate embed
    emit emulate enable encipher encode encrypt end enforce enlarge enqueue ensure enter enumerate erase escape
    establish estimate evaluate evict examine exchange exclude execute exempt exercise exhaust exit expand
    expect expire explain explore export expose express extend extract factor fail fall feed fetch fill filter
    finalise finalize find finish fit fix flag flatten flip flush fold follow forbid force forget fork form
    format forward free freeze fuse gather generate get give go grant grow guarantee guard guess halt halve hand
    handle hash have hide hint hold identify ignore imitate implement import improve impute include incorporate
    increase increment indent index indicate infer inform inherit initialise initialize inject insert insist
    inspect install instantiate integrate interleave interpolate interpret interrupt intersect introduce
    invalidate inverse invert invoke isolate issue iterate jitter join judge jump keep kill knock label launch
    lay lead learn lease leave lend let level limit link list listen load locate lock log look loop lower
    maintain make manage map mark mask match materialise materialize measure memorise memory-map merge mimic
    minimise minimize mirror mix modify monitor move multiplex multiply mutate name narrow negate nest normalise
    normalize note notice notify nudge obey observe obtain occupy offer omit open operate order outline overlay
    override overwrite own pack pad page paint pair parametrise parametrize parse partition pass paste patch
    pause peek perform permit permute persist pick pickle pin pipe place plan play plot point poll pool pop
    populate post postpone predict prefetch prefix prepare prepend present preserve press prevent print probe
    proceed process produce profile prolong promise promote propagate propose protect prove provide prune
    publish pull purge push put quantise quantize query queue quit quote raise randomise randomize range rank
    rate reach react read reap rebuild recalculate receive recognise recognize recombine recompute reconnect
    reconstruct record recover recreate recycle redirect redo reduce refer refill refresh refuse register
    regroup reject relate relay release reload remap remember remove rename render renew reopen reorder repack
    repair repeat replace replay reply report represent reproduce request require reread rescale reschedule
    reserve reset reshape resize resolve respect respond restart restore restrict resume retain rethrow retrieve
    retry return reuse reverse revert rewind rewrite roll rotate round route run sample satisfy save scale scan
    schedule score scrub seal search seed seek segment select send separate serialise serialize serve set settle
    shadow shape share sharpen shear shift ship shorten show shrink shuffle shut sign signal simulate skip sleep
    slice slide snap snapshot solarise solve sort spawn specify spill spin split spread stack stage stamp start
    state stop store stream stretch strip submit subscribe subset substitute subtract suggest sum summarise
    summarize supersede supervise supply support suppress suspend swap switch synchronise synchronize synthesise
    tabulate tag take tally teach tear terminate test throttle throw tick tie tile time toggle tokenise tokenize
    total touch trace track train transfer transform translate transmit transpose traverse treat trigger trim
    truncate try tune turn twist type unbind undo unflatten unite unlink unlock unmap unpack unpickle unregister
    unstack unsubscribe unwrap update upgrade upload upsample upscale use validate vary verify view visit vote
    wait wake walk warm warn watch wear weigh widen win wipe wire withdraw withhold work wrap write yield zero
    zip zoom
    """
)
# Verbs that are as often nouns: followed by one of `AFTER_A_NOUN` they begin a noun phrase ("Index in the epoch").
AFTER_A_NOUN = _words("of in at is are was were whose between per")
ALSO_NOUNS = _words(
    """
    answer average bar batch block box branch bridge buffer bundle cache call cap cast chain change charge check
    checkpoint chunk claim code colour command copy count cover crop cross cut cycle default delay digest
    display double draw drop dump duplicate end estimate exchange export factor filter fit fix flag flip fold
    form format guess hash hint index issue jitter join label lease level limit link list load lock log loop map
    mark mask match measure memory mix name note number offer order outline page pair patch pause pipe place
    plan play plot point pool post prefix present press process profile promise push query queue quote range
    rank rate read record reply report request result return reverse roll rotation round route run sample scale
    scan schedule score search seed segment set shadow shape share shear shift signal slice snapshot sort split
    spread stack stage stamp start state stop store stream stretch subset sum supply support switch tag tally
    test tick tile time total touch trace track train transfer transform trigger try turn twist type update use
    view visit vote wait walk watch wire work wrap write yield zero zip
    """
)
# In a class's or module's docstring these follow a verb ("Record the ..."), not a noun.
DETERMINERS = _words("the a an its their his your our it them this these every each all both one some")


class Phrase(NamedTuple):
    """A pattern, matched without regard to case, and the advice that is printed with it."""

    pattern: re.Pattern[str]
    advice: str


def _phrase(pattern: str, advice: str) -> Phrase:
    return Phrase(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), advice)


PHRASES = (
    _phrase(r"stand-?ins?", "replacement"),
    _phrase(r"stands?|stood|standing(?! by)", "is, is in, occurs, is written"),
    _phrase(r"tells?|told|telling", "return, report, pass, distinguish"),
    _phrase(r"makes? of", "say what happens: decode, derive, convert"),
    _phrase(r"(?:un)?sound", "valid, corrupt"),
    _phrase(r"anew", "again"),
    _phrase(r"beside", "next to, as well as, while"),
    _phrase(r"whatever", "for every, regardless of, anything that"),
    _phrase(r"of (?:its|their|his|your|our|my|one's) own", "its own X, a separate X"),
    _phrase(r"an own", "its own X, a separate X"),
    _phrase(
        r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|fewer|better|worse|slower|faster|larger|smaller)\w+",
        "is not a(n) X, is not X",
    ),
    _phrase(r"gives(?! up| way)", "returns, yields, produces, makes"),
    _phrase(r"so many", "this many, that number of"),
    _phrase(r"stations?", "stage"),
    _phrase(r"strikes?", "failed attempt"),
    _phrase(r"at hand", "available, ready"),
    _phrase(r"that is all", "name the limit"),
    _phrase(r"lies? in|lying in", "is in, is stored in"),
    _phrase(r"comes? of|came of", "is caused by, results from"),
    _phrase(r"on (?:its|their) way", "in flight"),
    _phrase(r"taken down|takes? down|took down", "recorded"),
    _phrase(r"mend(?:s|ed|ing)?", "fix, repair"),
    _phrase(r"pictures?", "image"),
    _phrase(r"dear(?:er|est|ly)?", "expensive, costly, slow"),
    _phrase(r"(?:can|could|to) be had", "is available, can be obtained"),
    _phrase(r"by turns", "alternately"),
    _phrase(
        r"(?:blocking|synchronous|asynchronous|async|sync|public|old|other|MXNet|Gluon|torch) faces?"
        r"|faces? of (?:the )?(?:loader|library|package|core)",
        "front end, API, loader",
    ),
)


class Problem(NamedTuple):
    """One finding."""

    path: Path
    line: int
    kind: str
    text: str


# -- first lines -------------------------------------------------------------------------------------------------------


def first_line_problem(docstring: str, *, function: bool) -> str | None:
    """Return the way in which a docstring's first words break the rule, or None."""
    words = docstring.split(maxsplit=2)
    first = words[0].rstrip(",.:;!?").removesuffix("'s") if words else ""
    lower = first.lower()
    second = words[1].strip(",.:;()").lower() if len(words) > 1 else ""
    if lower in QUESTIONS:
        return f'begins with "{first}": begin with a verb (class, module: a noun)'
    if function:
        bare = lower.removeprefix("re-")
        if bare not in VERBS:
            return f'begins with "{first}": begin with a verb ("Return ..."), or add the verb to VERBS in .ci/prose.py'
        if second == "of" or (bare in ALSO_NOUNS and second in AFTER_A_NOUN):
            return f'begins with the noun "{first}" ({second} ...): begin with a verb ("Return the ...")'
        return None
    imperative = lower in VERBS
    statement = _stem(lower)
    if not imperative and statement is None:
        return None
    noun = lower in ALSO_NOUNS or (statement is not None and statement in ALSO_NOUNS)
    if second in DETERMINERS or (not noun and second not in AFTER_A_NOUN):
        return f'begins with the verb "{first}": begin a class or module with a noun ("Iterator over ...")'
    return None


def _stem(word: str) -> str | None:
    """Return the verb whose third person `word` is, or None."""
    for ending, replacement in (("ies", "y"), ("es", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and (stem := word.removesuffix(ending) + replacement) in VERBS:
            return stem
    return None


def first_lines(path: Path, tree: ast.Module) -> Iterator[Problem]:
    """Check each docstring of a module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if not text:
            continue
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        wrong = first_line_problem(text, function=function)
        if wrong is not None:
            yield Problem(path, node.body[0].lineno, "first line", wrong)


# -- phrases -----------------------------------------------------------------------------------------------------------


def _blank(match: re.Match[str]) -> str:
    """Replace all but line breaks, so that what follows keeps its line."""
    return re.sub(r"[^\n]", " ", match[0]) if match[0].count("\n") else "\ufffc" + " " * (len(match[0]) - 1)


def without_code(text: str, *, markdown: bool) -> str:
    """Blank out code: fences, code spans, link targets, tags; in docstrings literal blocks and doctests."""
    text = re.sub(
        r"^([ >]*)(```+|~~~+)[^\n]*\n.*?^\1?[ >]*\2[ ]*$", _blank, text, flags=re.MULTILINE | re.DOTALL
    )
    if markdown:
        text = re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL)
        text = re.sub(r"(?<=\])\([^)\s]*\)", _blank, text)
        text = re.sub(r"^\[[^\]]+\]: \S+", _blank, text, flags=re.MULTILINE)
        text = re.sub(r"</?[a-zA-Z][^>]*>", _blank, text)
        text = re.sub(r"^:::.*$", _blank, text, flags=re.MULTILINE)
    else:
        text = re.sub(r"^ *(>>>|\.\.\. ).*$", _blank, text, flags=re.MULTILINE)
        text = re.sub(r"::\n\n?((?: {4,}[^\n]*\n| *\n)+)", lambda m: m[0][:2] + _blank_all(m[0][2:]), text)
    text = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", _blank, text, flags=re.DOTALL)
    return re.sub(r"\bhttps?://\S+", _blank, text)


def _blank_all(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def phrases(path: Path, first: int, text: str) -> Iterator[Problem]:
    """Search a piece of prose that begins in line `first`; phrases are found across line breaks."""
    words: list[str] = []
    line_at: dict[int, int] = {}  # the line of the word that begins at this place of the joined text
    place = 0
    for number, line in enumerate(text.split("\n"), first):
        for word in line.split():
            words.append(word)
            line_at[place] = number
            place += len(word) + 1
    joined = " ".join(words)
    for phrase in PHRASES:
        for match in phrase.pattern.finditer(joined):
            start = joined.rfind(" ", 0, match.start()) + 1
            yield Problem(path, line_at[start], "phrase", f'"{match[0]}": write {phrase.advice}')


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each run of comments in neighbouring lines."""
    run: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        text = token.string.lstrip("#!").strip()
        # What tools read, and frames drawn round headings.
        text = re.sub(r"^(noqa|type: ignore|pragma|fmt|mypy|ruff)\b[^#]*(#|$)", " ", text)
        if run and line != last + 1:
            yield start, "\n".join(run)
            run = []
        if not run:
            start = line
        run.append(text)
        last = line
    if run:
        yield start, "\n".join(run)


def hash_comments(text: str) -> str:
    """Return the comments of a shell script or a configuration file, each in its line."""
    found = (re.search(r"(?:^|\s)#(?!!)\s?(.*)", line) for line in text.split("\n"))
    return "\n".join(match[1] if match else "" for match in found)


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of docstrings and of other strings that are statements."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of string literals of three words and more that are not docstrings."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "`x`" for v in node.values)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in parts | statements
        ):
            text = node.value
        else:
            continue
        if len(text.split()) >= 3:
            yield node.lineno, text


# -- files -------------------------------------------------------------------------------------------------------------


def check_python(path: Path, *, rule: bool, with_messages: bool) -> Iterator[Problem]:
    """Check a Python file's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    if rule:
        yield from first_lines(path, tree)
    for line, text in (*strings(tree), *comments(source)):
        yield from phrases(path, line, without_code(text, markdown=False))
    # Messages under mxnet/ are MXNet's own, word for word.
    if with_messages and "mxnet" not in path.parts:
        for line, text in messages(tree):
            yield from phrases(path, line, without_code(text, markdown=False))


def check_file(path: Path, *, with_messages: bool = False) -> list[Problem]:
    """Check one file; one of an unknown kind has no problems."""
    if path.suffix == ".py":
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FIRST_LINES
        found = check_python(path, rule=inside or not path.is_relative_to(ROOT), with_messages=with_messages)
    elif path.suffix == ".md":
        found = phrases(path, 1, without_code(path.read_text(encoding="utf-8"), markdown=True))
    elif path.suffix in HASH_COMMENTS:
        text = hash_comments(path.read_text(encoding="utf-8"))
        found = phrases(path, 1, without_code(text, markdown=False))
    else:
        return []
    return sorted(found, key=lambda problem: (problem.line, problem.kind, problem.text))


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """Iterate over files, and over the files in folders whose kind is known."""
    kinds = {".py", ".md", *HASH_COMMENTS}
    for path in paths:
        if path.is_dir():
            yield from sorted(
                p
                for p in path.rglob("*")
                if p.is_file()
                and p.suffix in kinds
                and not any(part.startswith((".", "__pycache__")) for part in p.relative_to(path).parts)
            )
        else:
            yield path


def main() -> int:
    """Print what was found and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: all that is checked)")
    parser.add_argument(
        "--summary", action="store_true", help="print the number of findings of each file only"
    )
    parser.add_argument("--messages", action="store_true", help="check string literals of several words, too")
    options = parser.parse_args()
    paths = options.paths or [ROOT / name for name in EVERYTHING if (ROOT / name).exists()]
    found = [
        problem
        for path in files_of(path.resolve() for path in paths)
        for problem in check_file(path, with_messages=options.messages)
    ]

    def name(path: Path) -> Path:
        return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path

    if options.summary:
        for path, count in sorted(Counter(problem.path for problem in found).items()):
            print(f"{count:5} {name(path)}")
    else:
        for problem in found:
            print(f"{name(problem.path)}:{problem.line}: {problem.text}")
    if found:
        kinds = Counter(problem.kind for problem in found)
        print(
            ", ".join(f"{count} of kind '{kind}'" for kind, count in sorted(kinds.items())), file=sys.stderr
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
