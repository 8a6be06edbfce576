"""Numbers of a judge beside those of a report: prints each that differs, and ends with 1 when one does."""

import json
import sys


class Comparison:
    def __init__(self, report):
        with open(report) as file:
            self.analyses = json.load(file)["analyses"]
        self.compared = 0
        self.wrong = []

    def fact(self, analysis, name):
        return self.analyses[analysis]["facts"][name]

    def rows(self, analysis, table):
        return self.analyses[analysis]["tables"][table]["rows"]

    def same(self, what, judge, ours, within=0.0):
        """`within`: what the judge rounds to; 0 for numbers that must be the same."""
        self.compared += 1
        if ours is None or judge is None or not abs(judge - ours) <= within:
            self.wrong.append(f"{what}: the judge says {judge}, the report {ours}")

    def end(self, least):
        for line in self.wrong:
            print(line)
        print(f"{self.compared} numbers compared, {len(self.wrong)} differ")
        if self.compared < least:
            print(f"fewer than the {least} that must be")
        sys.exit(1 if self.wrong or self.compared < least else 0)
