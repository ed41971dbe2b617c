"""Decompresses request bodies (Content-Encoding) while they arrive, within limits."""

import zlib

from tformer_cli.plugins.serve.requests import Refused

GZIP = ("gzip", "x-gzip")
READ = "gzip, deflate"
_FEWEST = 2
"""Bytes needed to tell deflate with a zlib header, the standard, from raw deflate."""


def unpacker_for(encoding: str) -> "Unpacker | None":
    """Returns the decompressor of a body; None if it is not compressed."""
    coding = encoding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in (*GZIP, "deflate"):
        raise Refused(
            415,
            f"Content-Encoding: {coding[:40]} is not supported; send {READ} or none",
            headers={"accept-encoding": READ},
        )
    return Unpacker(is_gzip=coding in GZIP)


class Unpacker:
    """Decompresses a body in parts."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._stream: zlib._Decompress | None = None
        self._held = b""
        self.n_bytes = 0
        """Bytes of output so far."""

    def unpack(self, data: bytes, most: int) -> bytes:
        """Decompresses the next part; stops one byte above a total of `most`."""
        data, output = self._held + data, bytearray()
        self._held = b""
        while data and self.n_bytes <= most:
            if self._stream is None:
                if not self._is_gzip and len(data) < _FEWEST:
                    self._held = data
                    break
                self._stream = zlib.decompressobj(self._bits(data))
            try:
                part = self._stream.decompress(data, most + 1 - self.n_bytes)
            except zlib.error:
                raise self._damage_error() from None
            output += part
            self.n_bytes += len(part)
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                # A gzip file may have several members
                data, self._stream = self._stream.unused_data, None
                if data and not self._is_gzip:
                    raise self._damage_error()
        return bytes(output)

    def _bits(self, data: bytes) -> int:
        if self._is_gzip:
            return 16 + zlib.MAX_WBITS
        is_headed = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
        return zlib.MAX_WBITS if is_headed else -zlib.MAX_WBITS

    def end(self) -> None:
        """Refuses a truncated body."""
        if self._stream is not None or self._held:
            raise self._damage_error()

    def _damage_error(self) -> Refused:
        name = "gzip" if self._is_gzip else "deflate"
        return Refused(400, f"the body is not {name}, as its Content-Encoding says")
