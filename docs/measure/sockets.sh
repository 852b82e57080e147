#!/usr/bin/env bash
# Reads and writes by NVMe/TCP over loopback, the target's sockets by epoll and by io_uring in turns: requests per second, and the
# target's processor time of one. The target has one core, and the host the other.
#
#   docs/measure/sockets.sh QPAIR [SECONDS [ROUNDS]]
set -euo pipefail
qpair=$(realpath "$1") seconds=${2:-2} rounds=${3:-5}
folder=$(mktemp -d /dev/shm/sockets.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
nqn=nqn.2026-11.invalid.example:sockets
port=4500
# run SOCKETS RW SIZE CONNECTIONS DEPTH [--poll]: prints one row.
run() {
    local sockets=$1 rw=$2 size=$3 connections=$4 depth=$5
    shift 5
    port=$((port + 1))
    taskset -c 0 "$qpair" target --folder "$folder" --disk data=null:size=512MiB --nvme-tcp "127.0.0.1:$port" --nqn "$nqn" \
        --sockets "$sockets" "$@" >/dev/null 2>&1 &
    local target=$! before after
    sleep 0.3
    spent() { awk '{ s += $1 } END { print s }' "/proc/$target"/task/*/schedstat; }
    before=$(spent)
    taskset -c 1 "$qpair" bench io --name=r --filename="nvme:tcp:127.0.0.1:$port/$nqn" --rw="$rw" --bs="$size" --iodepth="$depth" \
        --numjobs="$connections" --group_reporting --runtime="$seconds" --time_based --output-format=json >"$folder/out"
    after=$(spent)
    kill "$target"
    wait "$target" || true
    awk -v s="$sockets" -v what="$rw $size connections=$connections depth=$depth ${*:-sleeping}" -v ns=$((after - before)) -v t="$seconds" \
        '/"total_ios"/ { gsub(/[^0-9]/, ""); if ($0 > n) n = $0 } END { printf "%s\t%s\t%.0f\t%.2f\n", what, s, n / t, ns / 1e3 / n }' "$folder/out"
}
for ((round = 0; round < rounds; round++)); do
    ways=(epoll io_uring)
    ((round % 2)) && ways=(io_uring epoll)
    for shape in "randread 4k 1 1" "randread 4k 4 1" "randread 4k 1 32" "randread 4k 4 32" "randread 4k 1 128" "randread 4k 16 8" \
        "randread 64k 1 32" "randread 256k 4 8" "randwrite 4k 1 32" "randwrite 64k 4 8" "randread 4k 4 32 --poll"; do
        for sockets in "${ways[@]}"; do
            # shellcheck disable=SC2086
            run "$sockets" $shape
        done
    done
done | tee "$folder/rows" >&2
# The medians of the rounds.
sort "$folder/rows" | awk -F'\t' '
    function median(a, n) { return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2 }
    function sorted(a, n, i, j, x) { for (i = 2; i <= n; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x } }
    { key = $1 "\t" $2; if (!(key in n)) order[++keys] = key; n[key]++; ios[key, n[key]] = $3 + 0; us[key, n[key]] = $4 + 0 }
    END { for (k = 1; k <= keys; k++) { key = order[k]; for (i = 1; i <= n[key]; i++) { a[i] = ios[key, i]; b[i] = us[key, i] }
        sorted(a, n[key]); sorted(b, n[key]); split(key, part, "\t")
        printf "%-52s %-9s %8.0f a second, %6.2f us of the target each\n", part[1], part[2], median(a, n[key]), median(b, n[key]) } }'
