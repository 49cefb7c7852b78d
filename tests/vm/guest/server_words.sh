# For what the other guest sends: the words of this one's suite, without its cases.
export PATH=/usr/bin:/bin:/sbin HOME=/root
. /suites/cases.sh
. /suites/pool.sh
. /suites/devdax.sh
. /suites/two_guests.sh
ADDRESS=$SERVER
export ENGRAM_ENDPOINT=$SERVER:7700
