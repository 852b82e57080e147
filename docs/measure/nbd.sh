#!/usr/bin/env bash
# Server's processor time of 4 KiB reads by NBD at a queue depth of 32: qpair, nbdkit and qemu-nbd in turns.
#
#   docs/measure/nbd.sh QPAIR [SECONDS]
set -euo pipefail
qpair=$(realpath "$1") seconds=${2:-3}
folder=$(mktemp -d /dev/shm/nbd.XXXXXX)
cd "$folder"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
truncate -s 256M image
head -c 268435456 /dev/zero >image
"$qpair" target --folder "$folder" --disk data=ram:size=256MiB --nbd "unix:$folder/qpair" >/dev/null 2>&1 &
pids=("qpair $!")
nbdkit -f -U "$folder/nbdkit" memory 256M &
pids+=("nbdkit $!")
qemu-nbd -t -f raw --shared=0 --cache=writeback -k "$folder/qemu-nbd" image &
pids+=("qemu-nbd $!")
sleep 1
for round in fill 1 2; do
    for connections in 1 4; do
        for one in "${pids[@]}"; do
            read -r server pid <<<"$one"
            kind=randread time=(--runtime="$seconds" --time_based)
            if [[ $round == fill ]]; then kind=write time=(); fi
            ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
            before=$(ticks)
            ios=$(fio --name=r --ioengine=nbd --uri="nbd+unix:///?socket=$folder/$server" --rw="$kind" --bs=4k --iodepth=32 "${time[@]}" \
                --size=256m --numjobs="$connections" --thread --group_reporting --output-format=terse --terse-version=3 | awk -F';' '/^3;/ { print $8 }')
            after=$(ticks)
            [[ $round == fill ]] || awk -v s="$server" -v c="$connections" -v i="$ios" -v t=$((after - before)) -v n="$seconds" \
                'BEGIN { printf "%-9s %d connections: %7.0f reads per second, %5.2f us of the server a read\n", s, c, i, t * 1e4 / (i * n) }'
        done
    done
done
