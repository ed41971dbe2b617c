"""How numbers of things are written in what people read."""


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Writes a number with what it counts: "1 line", "1,234 lines", "0 lines".

    Args:
        number: how many.
        noun: one of them.
        plural: several of them; None: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
