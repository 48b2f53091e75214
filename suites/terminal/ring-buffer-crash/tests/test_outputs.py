import hashlib
import os
import subprocess

import pytest

SOURCE = "/app/ring"
ENV = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
DRIVER = r"""
#include <stdint.h>
#include <stdio.h>
#include "ring.h"
int main(void) {
  struct ring ring;
  int value = 0;
  if (ring_init(&ring, 0) != -1) return 1;
  if (ring_init(&ring, 2) != 0) return 2;
  ring_push(&ring, 7);
  if (ring_grow(&ring, SIZE_MAX / 2) != -1 || ring.capacity != 2) return 3;
  if (!ring_pop(&ring, &value) || value != 7) return 4;
  value = 99;
  if (ring_pop(&ring, &value) || ring_last(&ring, &value) || value != 99) return 5;
  ring_free(&ring);
  ring_free(&ring);
  return 0;
}
"""


def build(tmp_path, main):
    program = tmp_path / "program"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", "-g", *sanitizers, "-I", SOURCE, "-o", program, main, f"{SOURCE}/ring.c"], check=True)
    return program


def replay(tmp_path, operations):
    trace = tmp_path / "trace"
    trace.write_text("".join(f"{operation}\n" for operation in operations))
    result = subprocess.run([build(tmp_path, f"{SOURCE}/replay.c"), trace], capture_output=True, text=True, env=ENV)
    assert result.returncode == 0, result.stderr[-500:]
    return result.stdout.split()


def expected(operations):
    ring, capacity, output = [], 3, []
    for operation in operations:
        name, *argument = operation.split()
        if name == "push":
            ring = [*ring, int(argument[0])][-capacity:]
        elif name == "grow":
            capacity = max(capacity, int(argument[0]))
        elif name == "size":
            output.append(str(len(ring)))
        elif name == "last":
            output.append(str(ring[-1]) if ring else "empty")
        else:
            output.append(str(ring.pop(0)) if ring else "empty")
    return output


CASES = {
    "empty": ["pop", "last", "size", "push 4", "pop", "pop"],
    "overwrite": [*(f"push {n}" for n in range(9)), "size", "last", "pop", "pop", "pop", "pop"],
    "wrap": [*(line for n in range(20) for line in (f"push {n}", f"push {-n}", "pop", "last"))],
    "grow-wrapped": [*(f"push {n}" for n in range(5)), "pop", "push 9", "grow 6", "push 10", "push 11", "size", *["pop"] * 6],
    "grow-less": ["push 1", "push 2", "push 3", "grow 1", "size", "push 4", *["pop"] * 4],
    "grow-often": [line for n in range(1, 60) for line in (f"push {n}", f"grow {n}", "last", "size")],
}


@pytest.mark.parametrize("name", CASES)
def test_trace(tmp_path, name):
    assert replay(tmp_path, CASES[name]) == expected(CASES[name])


def test_functions(tmp_path):
    main = tmp_path / "main.c"
    main.write_text(DRIVER)
    assert subprocess.run([build(tmp_path, main)], env=ENV).returncode == 0


def test_header_is_unchanged():
    assert hashlib.sha256(open(f"{SOURCE}/ring.h", "rb").read()).hexdigest() == "eb162c545ec9dbc44b12e1390f75b6ba5035030a5a7f583975f45c681e756764"


def test_program_is_built():
    result = subprocess.run(["./replay", "trace.txt"], cwd=SOURCE, capture_output=True, text=True)
    assert result.stdout == "2\n6\n3\n3\n"
