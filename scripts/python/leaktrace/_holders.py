"""Names what keeps tensors alive: a way of references from a module, a class or a running function to each. Looks at this
process only, and knows no recording."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

# Objects that are asked who refers to them: each is one pass over all objects.
_STEPS = 60
# Objects on a way.
_LONG = 8


def holders(addresses: Iterable[int], most: int = 3) -> List[str]:
    """Returns the ways to the tensors whose memory begins at these addresses, such as ``train.history[*]``."""
    ways: List[str] = []
    for tensor in _tensors(set(addresses)):
        way = _way(tensor)
        if way is not None and way not in ways:
            ways.append(way)
        if len(ways) == most:
            break
    return ways


def _tensors(addresses: Set[int]) -> List[Any]:
    """Returns one tensor for each of the addresses that has one."""
    torch = sys.modules.get("torch")
    found: Dict[int, Any] = {}
    if torch is None:
        return []
    for one in gc.get_objects():
        # Not isinstance: it would run the code of objects that only look like something.
        if not issubclass(type(one), torch.Tensor):
            continue
        try:
            address = one.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):
            continue
        if address in addresses:
            found.setdefault(address, one)
    return list(found.values())


def _way(tensor: Any) -> Optional[str]:
    """Finds the shortest way to an object from what has a name; ``None``: there is none, or it is too long."""
    queue: List[Tuple[Any, str, int]] = [(tensor, "", 0)]
    seen = {id(tensor), id(queue)}
    for asked in range(_STEPS):
        if asked == len(queue):
            break
        one, rest, depth = queue[asked]
        referrers = gc.get_referrers(one)
        seen.add(id(referrers))
        for by in referrers:
            if id(by) in seen or _is_ours(by):
                continue
            seen.add(id(by))
            named, part = _step(by, one)
            if named is not None:
                return named + rest
            if depth < _LONG:
                queue.append((by, part + rest, depth + 1))
    return None


def _is_ours(one: Any) -> bool:
    if isinstance(one, types.FrameType):
        return one.f_code.co_filename == __file__
    return type(one) is tuple and len(one) == 3 and type(one[1]) is str and type(one[2]) is int


def _step(by: Any, one: Any) -> Tuple[Optional[str], str]:
    """Returns the name of a reference, where it begins at something with a name; else what it adds to the way."""
    if isinstance(by, types.FrameType):
        for name, value in by.f_locals.items():
            if value is one:
                return f"{by.f_code.co_name}() local {name}", ""
        return None, ""
    if type(by) is dict:
        name = next((key for key, value in by.items() if value is one), None)
        for owner in gc.get_referrers(by):
            if isinstance(owner, types.ModuleType) and owner.__dict__ is by:
                return f"{owner.__name__}.{name}", ""
            if isinstance(owner, type) and owner.__dict__.get(name) is one:
                return f"{owner.__module__}.{owner.__qualname__}.{name}", ""
        # The dictionary of an object: the object comes next.
        if any(getattr(owner, "__dict__", None) is by for owner in gc.get_referrers(by) if not isinstance(owner, types.FrameType)):
            return None, f".{name}"
        return None, f"[{name!r}]" if isinstance(name, (str, int)) and len(str(name)) < 40 else "[*]"
    if isinstance(by, (list, tuple, set, frozenset)) or type(by).__name__ == "deque":
        return None, "[*]"
    if isinstance(by, types.CellType):
        return None, " in a closure"
    if isinstance(by, (types.FunctionType, types.MethodType)):
        return f"{by.__module__}.{by.__qualname__}", ""
    if isinstance(by, dict):
        return None, "[*]"
    attributes = vars(by) if hasattr(by, "__dict__") and not isinstance(by, type) else {}
    name = next((key for key, value in attributes.items() if value is one), None)
    return None, "" if name is None else f".{name}"
