"""A small test set: references, and systems that differ from them in known ways."""

NOUNS = ("cat", "dog", "bird", "horse", "child")
REFERENCES = tuple(
    f"The old {NOUNS[i % 5]} number {i} sat on the mat near the door and slept." for i in range(60)
)
FIRST = tuple(line.replace("old", "new") if i % 3 else line for i, line in enumerate(REFERENCES))
SECOND = tuple(line.replace("sat", "lay") if i % 4 else line for i, line in enumerate(FIRST))
THIRD = tuple(
    (line.replace("door", "fire"), REFERENCES[i], line)[i % 3] if i % 10 else line[:-9]
    for i, line in enumerate(FIRST)
)
SOURCE = tuple(f"Satz {i}" for i in range(60))
SYSTEMS = {"first": FIRST, "second": SECOND, "third": THIRD}
