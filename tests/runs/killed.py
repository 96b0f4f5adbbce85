"""Runs that are killed at moments which are spread over the files that they write."""

import json

from tests.processes import run_python

_CODE = """
import json, multiprocessing, os, signal, sys
from beam_pipeline import record
from beam_pipeline.storage import files

options, source, undisturbed, *outputs = sys.argv[1:]
options = json.loads(options)
made = multiprocessing.Value("i")  # also by processes that a run starts
fatal = 0

def counted(function):
    def call(*args, **kwargs):
        with made:
            made.value += 1
        if made.value == fatal:
            os.killpg(0, signal.SIGKILL)
        return function(*args, **kwargs)
    return call

files.move, files.write_bytes = counted(files.move), counted(files.write_bytes)
record(source, undisturbed, **options)
last = made.value
for number, folder in enumerate(outputs, 1):
    made.value, fatal = 0, last * number // len(outputs)
    child = os.fork()
    if child == 0:
        os.setpgrp()
        record(source, folder, **options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.WIFSIGNALED(status), flush=True)
"""


def record_and_kill(source, undisturbed, outputs, **options):
    """Records into each output, and kills the run before one of the files it writes.

    The last one is killed right before its last file. A run into ``undisturbed`` comes
    first; it counts the files.
    """
    done = run_python("-c", _CODE, json.dumps(options), source, undisturbed, *outputs)
    assert done.stdout.split() == ["True"] * len(outputs), done.stderr
