"""Lives through the histories of some seeds: `python -m tests.sim SEED [SEED ...]`. Says what is wrong.

A seed with a t before it is of producers with transactional ids: t7.
"""

import sys
import time
from functools import partial

from tests.sim.history import history, lived

if __name__ == "__main__":
    codes = 0
    for argument in sys.argv[1:]:
        begun = time.process_time()
        seed = int(argument.removeprefix("t"))
        found = lived(partial(history, seed, is_transactional=argument.startswith("t")))
        took = time.process_time() - begun
        sys.stdout.write(
            f"seed {argument}: {found.acknowledged} acks, {found.committed} transactions, "
            f"{found.ends_merged} ends of them merged, {found.lives} lives, {took:.2f} s of CPU\n"
        )
        for wrong in found.wrong:
            sys.stdout.write(f"  {wrong}\n")
        codes |= bool(found.wrong)
    sys.exit(codes)
