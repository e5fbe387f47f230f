"""The fields of a schema as a tree that can change, for `SchemaEdit`.

Invariant: a node knows its parent, so its dotted name follows when a field above it is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from streamlake.spec.types.data_types import ListType, MapType, NestedField, StructType, children


@dataclass(eq=False)
class Node:
    """A field that can change.

    `parts` are the fields of a struct, the element of a list, key and value of a map.
    """

    field: NestedField
    parent: Node | None
    parts: list[Node]

    @property
    def path(self) -> str:
        """The dotted name as it is now."""
        return self.field.name if self.parent is None else f"{self.parent.path}.{self.field.name}"

    @property
    def is_struct(self) -> bool:
        """Whether the field is a struct."""
        return isinstance(self.field.type, StructType)

    @property
    def is_in_map_key(self) -> bool:
        """Whether the field is the key of a map or inside one."""
        above = self.parent
        if above is None:
            return False
        return (isinstance(above.field.type, MapType) and above.parts[0] is self) or above.is_in_map_key

    def walk(self) -> Iterator[Node]:
        """The node itself and all nodes below it, parents first."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def built(self) -> NestedField:
        """The field with the types of its parts as they are now."""
        type_ = self.field.type
        parts = [part.built() for part in self.parts]
        if isinstance(type_, StructType):
            type_ = StructType(tuple(parts))
        elif isinstance(type_, ListType):
            type_ = replace(type_, element_type=parts[0].type, element_required=parts[0].required)
        elif isinstance(type_, MapType):
            type_ = replace(type_, value_type=parts[1].type, value_required=parts[1].required)
        return replace(self.field, type=type_)


def node_of(part: NestedField, parent: Node | None) -> Node:
    """The node of a field, with the nodes of all its parts."""
    node = Node(part, parent, [])
    node.parts = [node_of(inner, node) for inner in children(part.type)]
    return node


def found(nodes: Iterable[Node], path: str) -> Node | None:
    """The field with a dotted name below some nodes, or None."""
    for node in nodes:
        if node.field.name == path:
            return node
        if path.startswith(f"{node.field.name}."):
            inner = found(node.parts, path[len(node.field.name) + 1 :])
            if inner is not None:
                return inner
    return None
