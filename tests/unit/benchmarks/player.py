"""A rank without torch: it answers, is silent, fails or ends as it is told."""

import argparse
import json
import signal
import sys


def main():
    parser = argparse.ArgumentParser()
    for name in ("--rank", "--device", "--directory"):
        parser.add_argument(name)
    rank = int(parser.parse_args().rank)
    for line in sys.stdin:
        job = json.loads(line)
        verb = job["how"][rank] if "how" in job else job["contender"]
        if verb == "hang":
            signal.pause()
        if verb == "end":
            return
        answer = {"state": "checked"}
        if verb == "fail":
            answer = {"state": "failed", "found": "RuntimeError: no"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
