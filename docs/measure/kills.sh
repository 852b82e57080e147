#!/usr/bin/env bash
# The target ends by kill -9, again and again, while verified random writes are under way: every request is answered, and every block holds
# what was written last. The front end is this project's own; guest/tests/target has Linux's, with fio.
#
#   docs/measure/kills.sh QPAIR [TIMES]
set -euo pipefail
qpair=$1 times=${2:-50}
folder=$(mktemp -d -p "$(dirname "$qpair")")
target=''
trap 'kill -9 $target 2>/dev/null || true; kill $job 2>/dev/null || true; rm -rf "$folder"' EXIT
truncate -s 256M "$folder/image"

start() {
    "$qpair" target --folder "$folder" --disk "d=$folder/image" >"$folder/said" 2>&1 &
    target=$!
    local tries=0
    # The socket of the one before may still be there.
    until grep -q '^Ctrl-C' "$folder/said"; do
        ((tries += 1))
        kill -0 "$target" 2>/dev/null && ((tries < 2000)) || { echo "wrong: the target did not start: $(cat "$folder/said")"; exit 1; }
        sleep 0.01
    done
}

start
"$qpair" bench io --name=kills --filename="vhost-user:$folder/d.sock" --rw=randrw --bsrange=4k-64k --verify_interval=4k --iodepth=16 --size=256m --time_based \
    --runtime=3600 --verify=crc32c --verify_backlog=64 --output-format=json >"$folder/report" 2>"$folder/errors" &
job=$!
for ((life = 1; life <= times; life++)); do
    sleep "0.$((RANDOM % 5 + 2))"
    kill -0 "$job" 2>/dev/null || { echo "wrong: the job ended after $life lives: $(cat "$folder/errors" "$folder/report")"; exit 1; }
    kill -9 "$target"
    wait "$target" 2>/dev/null || true
    start
done
sleep 0.5
kill -INT "$job"
wait "$job" || true
python3 - "$folder/report" "$times" <<'P'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
own, times = job["qpair"], int(sys.argv[2])
print(f"{times} kills: {own['resets']} connections made anew, {job['read']['total_ios']} reads and {job['write']['total_ios']} writes answered, "
      f"{own['verify']['blocks']} blocks read back and checked, {own['verify']['wrong']} wrong, {job['error']} errors")
if own["verify"]["wrong"] or job["error"] or own["verify"]["blocks"] == 0 or own["resets"] < times:
    sys.exit("wrong: " + json.dumps(own["verify"]) + json.dumps(own["errors"]))
P
