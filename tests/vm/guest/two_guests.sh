# Two guests on one wire. The client's guest tells the server's what to do over a port that runs what it is sent.
SERVER=10.8.0.1
CLIENT=10.8.0.2

wire_is_there() { load_modules virtio_pci virtio_net && wait_until 10 test -e /sys/class/net/eth0; }

# on_server command...: runs it there and prints what it says. 0 when it was reached.
on_server() { echo "$*" | timeout 20 nc $SERVER 9000; }
# The same, with the suite's words; the last line says how it ended.
server_does() {
  { echo '. /suites/server_words.sh'; echo "$*"; echo 'echo "status $?"'; } | timeout 240 nc $SERVER 9000 | tee /tmp/server.said
  grep -q "^status 0" /tmp/server.said
}
server_is_ready() { on_server 'test -e /tmp/ready && echo yes' | grep -q yes; }
await_server() { wait_until 300 server_is_ready || refuse "the other guest serves no pool"; }

# Until the other guest says so, at most a quarter of an hour. /tmp/link.down: the link goes away for 10 s, a second later.
serve_until_finished() {
  local limit=$(($(date +%s) + 900))
  nc -ll -p 9000 -e /bin/sh &
  until [ -e /tmp/finished ] || [ "$(date +%s)" -ge "$limit" ]; do
    sleep 0.5
    [ -e /tmp/link.down ] || continue
    rm /tmp/link.down
    sleep 1
    ip link set eth0 down
    sleep 10
    ip link set eth0 up
  done
}
