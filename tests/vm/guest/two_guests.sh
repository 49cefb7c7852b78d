# Two guests on one wire. The client's guest tells the server's what to do over a port that runs what it is sent.
SERVER=10.8.0.1
CLIENT=10.8.0.2

wire_is_there() { load_modules virtio_pci virtio_net && wait_until test -e /sys/class/net/eth0; }

# on_server command...: runs it there and prints what it says. 0 when it was reached.
on_server() { echo "$*" | timeout $PATIENCE nc $SERVER 9000; }
# The same, with the suite's words; the last line says how it ended.
server_does() {
  { echo '. /suites/server_words.sh'; echo "$*"; echo 'echo "status $?"'; } | timeout $((2 * PATIENCE)) nc $SERVER 9000 | tee /tmp/server.said
  grep -q "^status 0" /tmp/server.said
}
server_is_ready() { on_server 'test -e /tmp/ready && echo yes' | grep -q yes; }
await_server() { wait_until server_is_ready || wait_until server_is_ready || refuse "the other guest serves no pool"; }

# Until the other guest says so. /tmp/link.down: the link goes away for 10 s, a second later; /tmp/link.up: when it came
# back. (Longer, and the management queue pair of soft-RoCE has to send something meanwhile, which stops it for good.)
serve_until_finished() {
  nc -ll -p 9000 -e /bin/sh &
  until [ -e /tmp/finished ]; do
    sleep 0.5
    [ -e /tmp/link.down ] || continue
    rm /tmp/link.down
    sleep 1
    ip link set eth0 down
    sleep 10
    ip link set eth0 up
    date +%s >/tmp/link.up
  done
}
