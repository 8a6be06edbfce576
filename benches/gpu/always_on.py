"""What stays on, with a real GPU: `python always_on.py GPUTRACE FOLDER`.

A small transformer under the flight recorder, dumped in the midst; recorded only between `gputrace start` and `stop`, and
between torch.cuda.profiler.start and stop; a kernel that runs for long, which the hang watch must name with its line of Python; one that
is launched for the first time late; and two sessions with one collector.
"""

import glob
import json
import os
import subprocess
import sys
import time

import gpu_time


def run(seconds, capture):
    import torch

    step = gpu_time.transformer()
    end, steps, captured = time.time() + seconds, 0, 0
    while time.time() < end:
        if capture == "yes" and steps == 20:
            torch.cuda.profiler.start()
        if capture == "yes" and steps == 30:
            torch.cuda.profiler.stop()
        step()
        steps += 1
    if capture == "late":
        torch.special.erfcx(torch.rand(1000, device="cuda"))
        torch.cuda.synchronize()
        step()
    print(f"steps {steps}")


def hang():
    import torch

    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    torch.cuda._sleep(int(20e9))
    torch.cuda.synchronize()


def traced(gputrace, trace, options, program):
    command = [gputrace, "-o", trace, *options, "--", sys.executable, os.path.abspath(__file__), "run", *program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def report(gputrace, trace, only):
    out = subprocess.run([gputrace, "report", trace, "--only", only], capture_output=True, text=True)
    return (out.stdout + out.stderr).splitlines()


def show(title, lines, most=14):
    print(title)
    print("\n".join("    " + line for line in lines[:most]), flush=True)


def main():
    gputrace, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    trace = os.path.join(folder, "recorder")
    running = traced(gputrace, trace, ["--flight-recorder", "3"], ["16", "no"])
    time.sleep(12)
    dump = subprocess.run([gputrace, "dump", trace], capture_output=True, text=True)
    show(f"flight recorder: dump exit {dump.returncode}, {dump.stdout.strip() or dump.stderr}", running.communicate()[0].splitlines()[-25:], 25)
    show("its report", report(gputrace, trace, "summary"), 30)

    trace = os.path.join(folder, "switched")
    running = traced(gputrace, trace, ["--start-paused"], ["16", "no"])
    time.sleep(11)
    answers = [subprocess.run([gputrace, verb, trace], capture_output=True, text=True) for verb in ("start", "stop") if not time.sleep(1)]
    show(f"start and stop: exits {[a.returncode for a in answers]}", running.communicate()[0].splitlines()[-12:])
    show("its report", report(gputrace, trace, "summary"), 20)

    trace = os.path.join(folder, "captured")
    running = traced(gputrace, trace, ["--capture-range", "cudaProfilerApi"], ["10", "yes"])
    running.communicate()
    show("between torch.cuda.profiler.start and stop, ten steps", report(gputrace, trace, "launch-overhead"), 16)

    trace = os.path.join(folder, "hang")
    running = traced(gputrace, trace, ["--hang-after", "4"], ["hang", "no"])
    show("a kernel of some 10 s, --hang-after 4", [line for line in running.communicate()[0].splitlines() if "hang" in line or " at " in line or "second" in line])
    hangs = json.load(open(glob.glob(trace + "/manifest/*")[0])).get("hangs")
    show(f"hangs in the manifest: {json.dumps(hangs)[:600]}", [line for file in glob.glob(trace + "/hangs/*") for line in open(file).read().splitlines()], 40)

    late(gputrace, folder)
    several(gputrace, folder)


def late(gputrace, folder):
    trace = os.path.join(folder, "late")
    traced(gputrace, trace, ["--flight-recorder", "3", "--dump-new-kernel", "5s"], ["20", "late"]).communicate()
    detail = json.load(open(glob.glob(trace + "/manifest/*")[0]))["detail"]
    show("a kernel that is new after 20 s, --dump-new-kernel 5s", [interval["why"] for interval in detail["intervals"]])


def several(gputrace, folder):
    sessions, trace = [os.path.join(folder, name) for name in ("one", "two")], os.path.join(folder, "both")
    command = [gputrace, "collect", *sessions, "--detail", "full", "-o", trace]
    collector = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while collector.poll() is None and not all(os.path.exists(session + "/s/control") for session in sessions):
        time.sleep(0.1)
    own = [sys.executable, os.path.abspath(__file__), "run", "12", "no"]
    programs = [subprocess.Popen([gputrace, "env", session, "--", *own], stdout=subprocess.PIPE, text=True) for session in sessions]
    said = [program.communicate()[0].strip() for program in programs]
    collector.terminate()
    said += [line for line in collector.communicate()[1].splitlines() if "stopped" in line]
    accounts = [json.load(open(file)) for file in glob.glob(trace + "/manifest/*.json")]
    processes = [process["accounting"] for account in accounts for process in account["processes"]]
    counts = [classes["launch"] for classes in processes if classes.get("launch", {}).get("seen")]
    show("two sessions, one collector", said + [f"launches seen {c['seen']}, recorded {c['recorded']}, lost {c['dropped']}" for c in counts])


if __name__ == "__main__":
    if sys.argv[1] == "run":
        hang() if sys.argv[2] == "hang" else run(float(sys.argv[2]), sys.argv[3])
    else:
        main()
