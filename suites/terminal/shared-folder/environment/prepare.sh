set -e
groupadd crew
useradd -m -s /bin/bash -G crew maya
useradd -m -s /bin/bash -G crew omar
useradd -m -s /bin/bash gwen
cd /srv/project
chown -R maya:maya .
chmod 755 . docs bin drop
chmod 700 bin/report docs/plans
chmod 744 bin/when
chmod 666 bin/README docs/plans/2025.txt
chmod 777 private
chmod 644 private/key
chmod 600 drop/maya.txt
