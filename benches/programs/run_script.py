"""Runs a script: `python3 run_script.py SCRIPT WORD...`. What is printed last is the seconds of processor time that it took."""

import runpy
import sys
import time

sys.argv = sys.argv[1:]
begin = time.process_time()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(time.process_time() - begin)
