#!/usr/bin/env bash
# Random reads of 4 KiB by NVMe/TCP over loopback: our target with a device in memory, polled on one core, and our host on another, which sleeps or polls.
#
#   docs/measure/nvme-tcp.sh QPAIR [SECONDS]
set -euo pipefail
qpair=$(realpath "$1") seconds=${2:-4}
folder=$(mktemp -d /dev/shm/nvme-tcp.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
nqn=nqn.2026-11.invalid.example:figures
port=4477
for device in ram:size=512MiB null:size=512MiB; do
    taskset -c 0 "$qpair" target --folder "$folder" --disk "data=$device" --nvme-tcp "127.0.0.1:$port" --nqn "$nqn" --poll >"$folder/said" 2>&1 &
    target=$!
    sleep 1
    for host in wait=sleep wait=poll wait=poll,header_digest=on,data_digest=on; do
        for depth in 1 32 128; do
            ios=$(taskset -c 1 "$qpair" bench io --name=r --filename="nvme:$host:tcp:127.0.0.1:$port/$nqn" --rw=randread --bs=4k --iodepth="$depth" \
                --runtime="$seconds" --time_based --output-format=json | grep -m1 '"iops"' | tr -dc '0-9.')
            printf '%-18s %-46s QD %3d: %.0f reads per second\n' "$device" "$host" "$depth" "$ios"
        done
    done
    kill "$target"
    wait "$target" || true
    port=$((port + 1))
done
# A target that sleeps, with an idle connection: its time in 10 s.
"$qpair" target --folder "$folder" --disk data=ram:size=16MiB --nvme-tcp "127.0.0.1:$port" --nqn "$nqn" >"$folder/said" 2>&1 &
target=$!
sleep 1
"$qpair" bench io --name=i --filename="nvme:tcp:127.0.0.1:$port/$nqn" --rw=randread --bs=4k --iodepth=1 --rate_iops=1 --runtime=14 --time_based >/dev/null &
sleep 2
ticks() { awk '{ print $14 + $15 }' "/proc/$target/stat"; }
before=$(ticks)
sleep 10
echo "a sleeping target with a connection of one read a second: $((($(ticks) - before) * 10)) ms of processor time in 10 s"
