"""What the user and the run say about a recording; it ends up in every file."""

import json
import sys
from typing import Any


class Metadata:
    """Keys to JSON texts. Kept for the life of a profile, so that the value of a key that
    is set while waiting is there in the next window; the last one wins."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._late: set[str] = set()  # keys set since the last window ended

    def add(self, key: str, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(
                f"add_metadata({key!r}): value is of type {type(value).__name__}, not str;"
                " give str(value), or add_metadata_json(key, json.dumps(value))"
            )
        self._set(key, json.dumps(value))

    def add_json(self, key: str, text: str) -> None:
        self._set(key, checked_json(key, text))

    def _set(self, key: str, text: str) -> None:
        self._texts[checked_key(key)] = text
        self._late.add(key)

    def values(self) -> dict[str, Any]:
        return {key: json.loads(text) for key, text in self._texts.items()}

    def take_for_window(self) -> dict[str, Any]:
        """All values, for the window that ends now."""
        self._late.clear()
        return self.values()

    def take_late(self) -> dict[str, Any]:
        """The values that came after it: in the handler, or before an export."""
        late = {key: json.loads(self._texts[key]) for key in self._late}
        self._late.clear()
        return late


def checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"metadata key {key!r} is of type {type(key).__name__}, not str")
    return key


def checked_json(key: str, text: object) -> str:
    """`text` if it is JSON; TypeError or ValueError otherwise."""
    if not isinstance(text, str):
        raise TypeError(
            f"metadata {key!r}: value is of type {type(text).__name__}, not JSON text; give"
            " json.dumps(value)"
        )
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(
            f"metadata {key!r}: {text[:80]!r} is not JSON ({error}); give json.dumps(value),"
            " or use add_metadata() for plain text"
        ) from None
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} has no form in JSON")


def distributed_info() -> dict[str, Any] | None:
    """This rank and its group, in the form that readers of torch's traces know."""
    if "torch.distributed" not in sys.modules:
        return None
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    info: dict[str, Any] = {
        "backend": dist.get_backend(),
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
    }
    if hasattr(dist, "get_pg_count"):
        info["pg_count"] = dist.get_pg_count()
        info["pg_config"] = json.loads(
            json.dumps(dist.distributed_c10d._get_all_pg_configs(), default=str)
        )
    if info["backend"] == "nccl":
        import torch.cuda.nccl

        info["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return info
