"""Documents in zip archives: rewrites the changed members and copies all others.

The standard library's writer would change dates, flags and extra fields of untouched members. Here
they keep their bytes, and nothing is ever unpacked to disk.
"""

import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tformer_cli.documents.segments import Document, Segment, add_unpacked
from tformer_cli.errors import DataError

MOST_MEMBERS = 20_000
LARGEST_PART = 64 * 2**20
"""Maximum unpacked bytes of one member; its XML tree takes about ten times as much memory."""
LARGEST_WHOLE = 256 * 2**20
"""Maximum unpacked bytes of all members read."""
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_OWN_SIZES = 0x0008
"""Flag: the sizes follow the data instead of preceding it."""
_ENCRYPTED = 0x0001
_DAMAGES = (zipfile.BadZipFile, NotImplementedError, ValueError, IndexError, struct.error)
"""Exceptions of zipfile for damaged files, for example offsets outside the file."""


_SHOWN = 100
"""Maximum characters of a zipfile error, which may quote a name of any length."""


class Archive:
    """A zip archive in memory."""

    def __init__(self, data: bytes, where: str) -> None:
        if data.startswith(b"\xd0\xcf\x11\xe0"):
            raise DataError(
                f"{where}: is in an old format or has a password; save it in the new format "
                "without a password"
            )
        self.where = where
        self._data = data
        self._contents: dict[str, bytes] = {}
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _DAMAGES as error:
            raise self.error(f"is damaged or not a zip archive ({str(error)[:_SHOWN]})") from None
        self.members = {info.filename: info for info in self._zip.infolist()}
        if len(self._zip.infolist()) > MOST_MEMBERS:
            raise self.error(f"has more than {MOST_MEMBERS} members")

    def error(self, what: str) -> DataError:
        return DataError(f"{self.where}: {what}")

    def read(self, name: str) -> bytes:
        """Unpacks a member into memory."""
        if name in self._contents:
            return self._contents[name]
        info = self.members.get(name)
        if info is None:
            raise self.error(f"has no {name}; it is damaged or has another format")
        whole = info.file_size + sum(map(len, self._contents.values()))
        add_unpacked(info.file_size)
        if info.file_size > LARGEST_PART or whole > LARGEST_WHOLE:
            raise self.error(f"is too large when unpacked ({name})")
        if info.flag_bits & _ENCRYPTED:
            raise self.error("has a password; save it without one")
        try:
            # zipfile stops at the size in the directory and verifies the checksum
            content = self._zip.read(info)
        except (*_DAMAGES, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise self.error(f"its member {name} is damaged ({str(error)[:_SHOWN]})") from None
        self._contents[name] = content
        return content

    def rewrite(self, changed: Mapping[str, bytes]) -> bytes:
        """Writes the archive with new contents for some members, in the original order."""
        if not changed:
            return self._data
        try:
            return self._splice_members(changed)
        except _DAMAGES as error:
            raise self.error(f"has a damaged directory ({str(error)[:_SHOWN]})") from None

    def _splice_members(self, changed: Mapping[str, bytes]) -> bytes:
        data, members = self._data, self._zip.infolist()
        entries, place = [], self._zip.start_dir
        for _ in members:
            end = place + _CENTRAL.size + sum(_CENTRAL.unpack_from(data, place)[10:13])
            entries.append(data[place:end])
            place = end
        if data[place : place + 4] != b"PK\x05\x06":
            raise self.error(
                "is a zip archive in the format for very large files; repack it without ZIP64"
            )
        # Offsets do not count data before the archive (a self-extracting program)
        shift = members[0].header_offset - int(_CENTRAL.unpack_from(entries[0])[-1])

        in_place = sorted(members, key=lambda info: info.header_offset)
        ends = [info.header_offset for info in in_place[1:]] + [self._zip.start_dir]
        out = bytearray(data[: in_place[0].header_offset])
        written: dict[int, tuple[int, bytes | None, bytes]] = {}
        for info, end in zip(in_place, ends, strict=True):
            # If two members share a name, zipfile and all other programs read the last
            content = changed.get(info.filename) if self.members[info.filename] is info else None
            packed = b"" if content is None else _pack_content(content, info.compress_type)
            written[info.header_offset] = len(out) - shift, content, packed
            if content is None:
                out += data[info.header_offset : end]
            else:
                out += _local_header(data, info.header_offset, content, packed) + packed
        start = len(out)
        for info, entry in zip(members, entries, strict=True):
            out += _directory_entry(entry, *written[info.header_offset])
        fixed = list(_END.unpack_from(data, place))
        fixed[5:7] = len(out) - start, start - shift
        return bytes(out) + _END.pack(*fixed) + data[place + _END.size :]


def _pack_content(content: bytes, method: int) -> bytes:
    if method == zipfile.ZIP_STORED:
        return content
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(content) + deflate.flush()


def _without_large_sizes(extra: bytes) -> bytes:
    """Removes the field of 64-bit sizes: the header now has the correct ones."""
    kept, place = b"", 0
    while place + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, place)
        if kind != 1:
            kept += extra[place : place + 4 + size]
        place += 4 + size
    return kept + extra[place:]


def _local_header(data: bytes, place: int, content: bytes, packed: bytes) -> bytes:
    fixed = list(_LOCAL.unpack_from(data, place))
    name_end = place + _LOCAL.size + fixed[9]
    extra = _without_large_sizes(data[name_end : name_end + fixed[10]])
    fixed[2] &= ~_OWN_SIZES
    fixed[3] = zipfile.ZIP_STORED if fixed[3] == zipfile.ZIP_STORED else zipfile.ZIP_DEFLATED
    fixed[6:9] = zlib.crc32(content), len(packed), len(content)
    fixed[10] = len(extra)
    return _LOCAL.pack(*fixed) + data[place + _LOCAL.size : name_end] + extra


def _directory_entry(entry: bytes, place: int, content: bytes | None, packed: bytes) -> bytes:
    fixed = list(_CENTRAL.unpack_from(entry))
    name_end = _CENTRAL.size + fixed[10]
    extra = entry[name_end : name_end + fixed[11]]
    comment = entry[name_end + fixed[11] :]
    fixed[16] = place
    if content is not None:
        extra = _without_large_sizes(extra)
        fixed[3] &= ~_OWN_SIZES
        fixed[4] = zipfile.ZIP_STORED if fixed[4] == zipfile.ZIP_STORED else zipfile.ZIP_DEFLATED
        fixed[7:10] = zlib.crc32(content), len(packed), len(content)
        fixed[11] = len(extra)
    return _CENTRAL.pack(*fixed) + entry[_CENTRAL.size : name_end] + extra + comment


class ArchiveDocument:
    """A document in several members of an archive."""

    def __init__(
        self,
        archive: Archive,
        parts: Mapping[str, Document],
        relabel: Mapping[str, Callable[[bytes], bytes]],
    ) -> None:
        self.skipped: Counter[str] = Counter()
        for part in parts.values():
            self.skipped.update(part.skipped)
        self._archive = archive
        self._parts = parts
        self._relabel = relabel
        """Functions that change the declared language of members, if anything is translated."""

    @property
    def segments(self) -> list[Segment]:
        return [segment for part in self._parts.values() for segment in part.segments]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        changed: dict[str, bytes] = {}
        place = 0
        if all(segment is None for segment in translated):
            return self._archive.rewrite(changed)
        for name, part in self._parts.items():
            end = place + len(part.segments)
            changed[name] = part.write(translated[place:end])
            place = end
        for name, relabel in self._relabel.items():
            changed[name] = relabel(changed.get(name) or self._archive.read(name))
        same = {name for name, content in changed.items() if content == self._archive.read(name)}
        return self._archive.rewrite({name: changed[name] for name in changed.keys() - same})
