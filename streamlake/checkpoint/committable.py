"""The Committable: one checkpoint's delta manifests and identity, durable as JSON until it is committed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.replaced_files import replaced_file_from_json, replaced_file_to_json
from streamlake.checkpoint.staged_extra import NOTHING, Extra, extra_from_json, extra_to_json
from streamlake.errors import DataInvalidError
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import FieldSummary, ManifestContent, ManifestFile

FORMAT = 2
_READ_FORMATS = (1, 2)


@dataclass(frozen=True)
class Committable:
    """Everything that a commit needs after a crash.

    `mode` is the sink's; `table_uuid` is the table's at staging. A checkpoint that deletes rows has
    `delete_files` in its manifests, and `removed` lists the delete files and data files that they replace.
    Where it deletes by position, `base_snapshot_id` is the snapshot that the positions refer to (None: an
    empty table), `index_state` the path of the key index's state afterwards, and `runs` the paths of the
    index runs that the checkpoint wrote. Where rows are replaced by key, `key_ids` and `sequence_ids` are the
    field ids of the key and of `sequence_by`. `summary` has further entries for the snapshot's summary.
    `extra` is what the pipeline keeps with it.
    """

    identity: CheckpointIdentity
    table_uuid: str
    branch: str
    mode: str
    manifests: tuple[ManifestFile, ...]
    rows: int
    data_files: int
    bytes: int
    delete_files: int = 0
    removed: tuple[DataFile, ...] = ()
    base_snapshot_id: int | None = None
    index_state: str | None = None
    runs: tuple[str, ...] = ()
    key_ids: tuple[int, ...] = ()
    sequence_ids: tuple[int, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    extra: Extra = NOTHING

    @property
    def needs_its_base(self) -> bool:
        """Whether it fits only onto `base_snapshot_id`, because its deletes are only valid for that state."""
        return bool(self.index_state is not None or self.base_snapshot_id is not None or self.removed)


def committable_to_bytes(committable: Committable) -> bytes:
    """The Committable as JSON in the newest format version."""
    obj = {
        "format": FORMAT,
        **{name: getattr(committable, name) for name in Committable.__dataclass_fields__},
        "identity": asdict(committable.identity),
        "manifests": [_manifest_to_json(manifest) for manifest in committable.manifests],
        "removed": [replaced_file_to_json(file) for file in committable.removed],
        "summary": dict(committable.summary),
        "extra": extra_to_json(committable.extra),
    }
    return json.dumps(obj, indent=1).encode()


def committable_from_bytes(data: bytes, path: str) -> Committable:
    """The Committable in these bytes.

    Raises DataInvalidError naming `path` when they are damaged or of another version.
    """
    try:
        obj = json.loads(data)
        if obj.pop("format") not in _READ_FORMATS:
            raise DataInvalidError(
                f"{path} was staged by another version of streamlake; finish it with that version"
            )
        identity = obj.pop("identity")
        start_offsets, end_offsets = identity.pop("start_offsets"), identity.pop("end_offsets")
        manifests = tuple(_manifest_from_json(manifest) for manifest in obj.pop("manifests"))
        removed = tuple(replaced_file_from_json(file) for file in obj.pop("removed", ()))
        extra = extra_from_json(obj.pop("extra", {}))
        for name in ("runs", "key_ids", "sequence_ids"):
            obj[name] = tuple(obj.get(name, ()))
        restored = CheckpointIdentity(
            **identity, start_offsets=tuple(start_offsets), end_offsets=tuple(end_offsets)
        )
        return Committable(identity=restored, manifests=manifests, removed=removed, extra=extra, **obj)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataInvalidError(
            f"the staged checkpoint {path} is damaged ({error!r}); its rows can be written again: "
            "move the file away and restart the job"
        ) from error


def _manifest_to_json(manifest: ManifestFile) -> dict[str, Any]:
    obj = {**vars(manifest), "content": int(manifest.content)}
    obj["key_metadata"] = _encode(manifest.key_metadata)
    if manifest.partitions is not None:
        obj["partitions"] = [
            [part.contains_null, part.contains_nan, _encode(part.lower_bound), _encode(part.upper_bound)]
            for part in manifest.partitions
        ]
    return obj


def _manifest_from_json(obj: dict[str, Any]) -> ManifestFile:
    partitions = obj.pop("partitions")
    if partitions is not None:
        partitions = tuple(
            FieldSummary(nulls, nans, _decode(lower), _decode(upper))
            for nulls, nans, lower, upper in partitions
        )
    content = ManifestContent(obj.pop("content"))
    key_metadata = _decode(obj.pop("key_metadata"))
    return ManifestFile(**obj, content=content, key_metadata=key_metadata, partitions=partitions)


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
