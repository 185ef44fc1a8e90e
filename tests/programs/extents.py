"""The loops of the standard library, by `dis` of the interpreter that runs this. One line per code object: name, its
instructions as they lie in memory, its exception table, its loops.

    extents.py

Modules are compiled as they stand; those that are imported here are also used a little, so that their bytecode is
specialised, and (3.12 and later) instrumented. Fails where a loop begins on a line that is in no loop of the source.
"""

import ast
import dis
import glob
import os
import sys
import sysconfig
import types

VERSION = sys.version_info[:2]
# From 3.14 on END_ASYNC_FOR says which `SEND` it belongs to, and goes on to the next.
JUMPS = (set(dis.hasjabs) | set(dis.hasjrel)) - {dis.opmap.get("END_ASYNC_FOR")}
STOPS = {
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT", "INTERPRETER_EXIT",
}  # fmt: skip


def stored(instruction):
    """The numbers of the local variables that an instruction gives a value to."""
    name, argument = instruction.opname.replace("INSTRUMENTED_", ""), instruction.arg
    if name == "STORE_FAST_STORE_FAST":
        return [argument >> 4, argument & 15]
    if name == "STORE_FAST_LOAD_FAST":
        return [argument >> 4]
    return [argument] if name == "STORE_FAST" else []


# What follows where `async for` has waited for its item, before that is given to anything.
CLEARED = {"POP_BLOCK", "END_SEND", "NOT_TAKEN", "INSTRUMENTED_END_SEND", "INSTRUMENTED_NOT_TAKEN"}


def first_of_body(listed, header):
    """Where the body of a loop begins, behind what fetches an item."""
    names = [i.opname for i in listed[header : header + 12]]
    if names[0] == "FOR_ITER":
        return header + 1
    if "GET_ANEXT" not in names[:2]:
        return header
    return header + 1 + next(n for n, name in enumerate(names) if name in ("JUMP_BACKWARD_NO_INTERRUPT", "YIELD_FROM"))


def loops(code):
    """(header, where the body begins, the variable of its items, offsets in it) of every natural loop."""
    listed, at = [], {}
    for i in dis.get_instructions(code):
        if i.opname != "CACHE":
            # What extends an argument is a part of the instruction behind it.
            at[i.offset] = len(listed)
            if i.opname != "EXTENDED_ARG":
                listed.append(i)
    before = [set() for _ in listed]
    back = {}
    for n, i in enumerate(listed):
        if i.opcode in JUMPS:
            to = at[i.argval]
            before[to].add(n)
            if to <= n and i.opname != "JUMP_BACKWARD_NO_INTERRUPT":
                back.setdefault(to, set()).add(n)
        if i.opname not in STOPS and n + 1 < len(listed):
            before[n + 1].add(n)
    if VERSION >= (3, 11):
        for entry in dis._parse_exception_table(code):
            for n, i in enumerate(listed):
                if entry.start <= i.offset < entry.end:
                    before[at[entry.target]].add(n)
    found = []
    for header, sources in back.items():
        body, work = {header}, list(sources)
        while work:
            n = work.pop()
            if n not in body:
                body.add(n)
                work += before[n]
        # No loop: an exception's handler, say, that jumps back to where it goes on.
        if 0 in body and header != 0:
            continue
        offsets = sorted(listed[n].offset for n in body)
        at_body, variable = first_of_body(listed, header), -1
        if at_body > header:
            first = [i for i in listed[at_body : at_body + 4] if i.opname not in CLEARED]
            given = stored(first[0]) or (stored(first[1]) if first[0].opname == "UNPACK_SEQUENCE" else [])
            if given and [v for n in body for v in stored(listed[n])].count(given[0]) == 1:
                variable = given[0]
        found.append((listed[header].offset, listed[at_body].offset, variable, offsets))
    return sorted(found)


def within(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from within(constant)


def show(code):
    found = loops(code)
    if not found:
        return
    memory = getattr(code, "_co_code_adaptive", code.co_code)
    table = getattr(code, "co_exceptiontable", b"")
    listed = ";".join("%d,%d,%d,%s" % (h, b, v, ",".join(map(str, offsets))) for h, b, v, offsets in found)
    print(code.co_name, memory.hex(), table.hex() or "-", listed or "-")


LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def lines_in_loops(source):
    """The lines of a source that lie in its loops and comprehensions."""
    lines = set()
    for loop in ast.walk(ast.parse(source)):
        if isinstance(loop, LOOPS):
            within = [node.lineno for node in ast.walk(loop) if hasattr(node, "lineno")]
            lines.update(range(min(within), max(within) + 1))
    return lines


def require_loops_of_source(code, lines):
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    for header, *_ in loops(code):
        line = [line for offset, line in starts if offset <= header][-1]
        if line not in lines:
            sys.exit("%s: no loop at line %d, offset %d" % (code, line, header))


def use():
    import collections, difflib, json, re, textwrap, tokenize  # noqa: E401

    for _ in range(3):
        text = open(textwrap.__file__).read()
        tree = ast.dump(ast.parse(text))
        json.loads(json.dumps([tree[:500].split(), {str(n): n / 3 for n in range(99)}], indent=1))
        list(difflib.ndiff(text.split("\n")[:60], text.split("\n")[20:80]))
        re.compile("(a|b)*[^c-z]{2,5}(?=x)").sub("", text)
        textwrap.fill(text[:3000])
        collections.Counter(text).most_common(3)
        with open(textwrap.__file__, "rb") as file:
            list(tokenize.tokenize(file.readline))
    return [ast, collections, difflib, json.decoder, json.encoder, re, textwrap, tokenize]


ASYNCHRONOUS = """
async def all_of(sources):
    made = {}
    for name, source in sources:
        async for first, rest in source:
            async for item in first:
                made[name] = [thing async for thing in item if thing]
    return {x: key for key in made async for x in made[key]}
"""


def functions(module):
    for thing in list(vars(module).values()):
        for inner in [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]:
            if isinstance(inner, types.FunctionType):
                yield inner.__code__


if __name__ == "__main__":
    if VERSION >= (3, 12):
        seen = sys.monitoring.events
        sys.monitoring.use_tool_id(3, "test")
        sys.monitoring.set_events(3, seen.JUMP | seen.BRANCH | seen.CALL | seen.PY_START | seen.PY_YIELD | seen.PY_RETURN)
        for event in (seen.JUMP, seen.BRANCH, seen.CALL, seen.PY_START, seen.PY_YIELD, seen.PY_RETURN):
            sys.monitoring.register_callback(3, event, lambda *_: None)
    instrumented = [code for module in use() for code in functions(module)]
    for code in instrumented:
        show(code)
    if VERSION >= (3, 12):
        sys.monitoring.set_events(3, 0)
        for code in [code for module in use() for code in functions(module)]:
            show(code)
    for code in within(compile(ASYNCHRONOUS, "asynchronous", "exec")):
        show(code)
    # Every sixth module: a second or two.
    modules = glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py"))
    for path in sorted(filter(os.path.exists, modules))[::6]:
        with open(path, "rb") as file:
            source = file.read()
        lines = lines_in_loops(source)
        for code in within(compile(source, path, "exec")):
            require_loops_of_source(code, lines)
            show(code)
