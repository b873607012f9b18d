"""Write small PyTorch execution traces, in the layouts of schema 1.0.1 (flat) and of those since 1.0.2."""

from __future__ import annotations

import json
from typing import Any

Node = dict[str, Any]


def node(number: int, name: str, parent: int = 1, *, schema: str = "1.1.1-chakra.0.0.4", **more: Any) -> Node:
    """One node. more: values, shapes, types (inputs), made (shapes of the outputs), rf, tid, op_schema, attrs."""
    values, shapes, types = more.get("values", []), more.get("shapes", []), more.get("types", [])
    facts = {"rf_id": more.get("rf", 0), "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": more.get("tid", 1),
             "fw_tid": 0, "op_schema": more.get("op_schema", "")}  # fmt: skip
    made = more.get("made", [])
    if schema == "1.0.1":
        flat = {"inputs": values, "input_shapes": shapes, "input_types": types, "outputs": [], "output_shapes": made,
                "output_types": []}  # fmt: skip
        return {"name": name, "id": number, "parent": parent} | facts | flat
    facts |= more.get("attrs", {})
    listed = [{"name": k, "type": "string" if isinstance(v, str) else "uint64", "value": v} for k, v in facts.items()]
    return {
        "id": number, "name": name, "ctrl_deps": parent,
        "inputs": {"values": values, "shapes": shapes, "types": types},
        "outputs": {"values": [], "shapes": made, "types": []}, "attrs": listed,
    }  # fmt: skip


def record(
    number: int, op: str = "allreduce", parent: int = 1, *, schema: str = "1.1.1-chakra.0.0.4", n: int = 6, rank: int = 1,
    seq: int = 55, group: Any = ("7", "tp"), where: tuple[int, ...] = (4, 2, 2), splits: Any = ([], []), p2p: bool = False,
    **more: Any,
) -> Node:  # fmt: skip
    """A `record_param_comms` node of a tensor of n floats, as torch of that schema writes it."""
    named = list(group) if isinstance(group, tuple) else group
    number_of = [seq, p2p] if schema.startswith("1.1.1") else seq
    tensor, shape, kind = [[[5, 6, 0, n, 4, "cuda:0"]]], [[[n]]], ["GenericList[Tensor(float)]"]
    if op in ("wait", "barrier"):
        tensor, shape, kind = [], [], []
    values = [*tensor, number_of, named, rank, op, *splits, *where]
    types = [
        *kind, "Tuple[Int,Bool]" if isinstance(number_of, list) else "Int",
        "Tuple[String,String]" if isinstance(named, list) else "Int", "Int", "String", "GenericList[]", "GenericList[]",
        *["Int"] * len(where),
    ]  # fmt: skip
    attrs: dict[str, Any] = {}
    if schema.startswith("1.1") and op != "wait":
        attrs = {"collective_name": op, "dtype": "Float", "in_msg_nelems": n, "out_msg_nelems": n,
                 "in_split_size": str(splits[0]), "out_split_size": str(splits[1]), "pg_name": named[0], "pg_desc": named[1],
                 "pg_size": where[-1]}  # fmt: skip
        if len(where) == 3 and where[0] >= 0:
            attrs |= {"global_rank_start": where[0], "global_rank_stride": where[1]}
    return node(number, "record_param_comms", parent, schema=schema, values=values, shapes=[*shape, *[[]] * 8],
                types=types, made=shape, attrs=attrs, **more)  # fmt: skip


def groups(number: int, told: list[dict[str, Any]]) -> Node:
    """The observer's list of process groups."""
    return node(number, "## process_group:init ##", 2, values=[json.dumps(told)], shapes=[[]], types=["String"])


def trace(*nodes: Node, schema: str = "1.1.1-chakra.0.0.4", indent: int | None = None) -> str:
    """The whole file."""
    head = {
        "schema": schema,
        "pid": 7,
        "time": "2026-01-31 12:00:00",
        "start_ts": 1,
        "nodes": list(nodes),
        "finish_ts": 9,
    }
    return json.dumps(head, indent=indent)
