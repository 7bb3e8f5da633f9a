"""`python -m holdfast.backends.firestore [--collection NAME]` prints `firestore.indexes.json`."""

import argparse
import sys

from holdfast.backends.firestore import collection_of
from holdfast.backends.firestore.indexes import indexes
from holdfast.errors import BadURL


def main() -> int:
    """Print it."""
    parser = argparse.ArgumentParser("python -m holdfast.backends.firestore", description=__doc__)
    parser.add_argument("--collection", default="holdfast", metavar="NAME", help="the root collection (%(default)s)")
    try:
        sys.stdout.write(indexes(collection_of(parser.parse_args().collection)) + "\n")
    except BadURL as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
