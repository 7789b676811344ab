"""The file that spark-submit runs: the command `dragoman`, whose jobs then run on the Spark that spark-submit
has set up.

    spark-submit --master spark://host:7077 "$(dragoman spark-script)" compact segments --data-dir DIR

Until it has found Dragoman it needs nothing but Python.
"""

import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve()
USAGE: Final = 2


def path() -> str:
    """Of this file, as spark-submit takes it."""
    return str(HERE)


def main() -> None:
    # spark-submit puts the directory of the file first, whose modules are not meant to be found there.
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != HERE.parent]
    try:
        from gateway.cli.main import main as dragoman
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"dragoman: {sys.executable} has no module {error.name}: name a Python that has Dragoman, by "
            "PYSPARK_PYTHON or --conf spark.pyspark.driver.python\n"
        )
        raise SystemExit(USAGE) from None
    dragoman()


if __name__ == "__main__":
    main()
