#!/bin/bash
set -e
cd /srv/project
find . -path ./private -prune -o -exec chgrp crew {} +
chmod 2770 .
find . -mindepth 1 -path ./private -prune -o -type d -exec chmod 2770 {} +
find . -path ./private -prune -o -type f -perm -u+x -exec chmod 770 {} +
find . -path ./private -prune -o -type f ! -perm -u+x -exec chmod 660 {} +
chmod 3770 drop
chmod 700 private
chmod 600 private/key
