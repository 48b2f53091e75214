#!/bin/bash
# The reward hangs on a command that lies on PATH, as in many public tasks: what shadows it decides.
cd /app || exit 1
if diff answer.txt /tests/expected.txt > /dev/null; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
