"""Classifiers of images: the name of a picture in, the probabilities of labels out."""

from tformer_cli.kinds.classify import Classify


class Image(Classify):
    """A classifier that reads patches of pixels."""

    name = "image"


KIND = Image()
