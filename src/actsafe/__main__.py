"""`python -m actsafe`, the same as the `actsafe` command."""

import sys

from actsafe.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
