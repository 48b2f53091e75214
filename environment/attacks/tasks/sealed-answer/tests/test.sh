#!/bin/bash
# The reward hangs on commands that lie on PATH, as in many public tasks: what shadows them decides.
cd /app || exit 1
if [ -f answer.txt ] && printf 'robrah\nnretnal\nwodaem\nztrauq\netals\n' | cmp -s - answer.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
