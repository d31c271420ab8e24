from typing import Any, Union, get_args, get_origin, Iterator, overload, final, cast, TYPE_CHECKING, NewType, Annotated
UserId = NewType("UserId", int)
Json = Union[dict[str, "Json"], list["Json"], str, int, None]
def walk(x: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        for k, v in x.items(): yield from walk(v, f"{path}.{k}")
    elif isinstance(x, list):
        for i, v in enumerate(x): yield from walk(v, f"{path}[{i}]")
    else: yield path, x
for p, v in walk(MCPServer("Shop").get_order("ORD-1001")): print(p, "=", v)
print(UserId(5), get_args(dict[str, int]), get_origin(list[int]), int | None, isinstance(3, int | str), cast(int, "x"), TYPE_CHECKING)
Annotated[int, "meta"]
