#!/bin/bash
set -e
cd /app/logs
{ zcat auth.log.2.gz auth.log.1.gz; cat auth.log; } | awk '$4 == "login"' | sort > /tmp/logins
ip=$(awk '/result=fail/ { print $6 }' /tmp/logins | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
grep -F "$ip " /tmp/logins > /tmp/own
{
  echo "attacker: ${ip#ip=}"
  echo "failures: $(grep -c result=fail /tmp/own)"
  echo "users: $(awk '/result=fail/ { print $5 }' /tmp/own | sort -u | wc -l)"
  echo "first: $(awk '/result=fail/ { print $1; exit }' /tmp/own)"
  awk '/result=fail/ { failed[$5]++ } /result=ok/ && failed[$5] >= 5 { sub("user=", "", $5); print "compromised: " $5 " " $1; exit }' /tmp/own
} > /app/report.txt
