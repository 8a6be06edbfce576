"""Makes and drops Python objects of all sizes, a few calls deep: `PYTHONMALLOC=malloc python3 object_churn.py ROUNDS`.

Prints the seconds of processor time that it took for that.
"""

import sys
import time


def leaf(n):
    return [str(n), {"n": n, "half": n / 2}, (n, n + 1), bytes(n % 300)]


def branch(n, depth):
    return leaf(n) if depth == 0 else [branch(n + 1, depth - 1), n]


def main(rounds):
    kept = [None] * 1000
    for n in range(rounds):
        kept[n % 1000] = branch(n, n % 6)


begin = time.process_time()
main(int(sys.argv[1]))
print(time.process_time() - begin)
