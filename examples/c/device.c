/* Writes, flushes and reads a block device, asynchronously.
 *
 *   cc device.c $(pkg-config --cflags --libs qpair) -o device && ./device ram:size=1MiB */
#include <qpair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BLOCKS = 16 };

static void must(int code, qpair_error *error)
{
    if (code == QPAIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", qpair_code_name(code), qpair_error_message(error));
    qpair_error_free(error);
    exit(1);
}

/* Waits for `count` requests, none of which may fail. */
static void wait_for(qpair_queue *queue, size_t count)
{
    qpair_error *error = NULL;
    struct qpair_completion done[BLOCKS];
    size_t taken, at;

    done[0].size = sizeof done[0];
    must(qpair_queue_wait(queue, done, count, BLOCKS, -1, &taken, &error), error);
    if (taken != count)
        exit(2);
    for (at = 0; at < taken; at++)
        must(done[at].code, done[at].error);
}

int main(int argc, char **argv)
{
    qpair_error *error = NULL;
    qpair_device *device;
    qpair_queue *queue;
    struct qpair_device_info info = {.size = sizeof info};
    struct qpair_device_options options = {.size = sizeof options, .buffered = 1, .depth = BLOCKS};
    static unsigned char written[BLOCKS][BLOCK], read[BLOCKS][BLOCK];
    uint64_t at;

    must(qpair_device_open(argc > 1 ? argv[1] : "ram:size=1MiB", &options, &device, &error), error);
    must(qpair_device_get_info(device, &info, &error), error);
    must(qpair_queue_new(&queue, &error), error);
    for (at = 0; at < BLOCKS; at++) {
        memset(written[at], (int)at + 1, BLOCK);
        must(qpair_device_write(device, queue, at * BLOCK, written[at], BLOCK, 0, at, &error), error);
    }
    wait_for(queue, BLOCKS);
    must(qpair_device_flush(device, queue, 0, &error), error);
    wait_for(queue, 1);
    for (at = 0; at < BLOCKS; at++)
        must(qpair_device_read(device, queue, at * BLOCK, read[at], BLOCK, at, &error), error);
    wait_for(queue, BLOCKS);
    if (memcmp(written, read, sizeof written) != 0)
        return 2;
    if (info.discards) {
        must(qpair_device_discard(device, queue, 0, BLOCK, 0, &error), error);
        wait_for(queue, 1);
    }
    printf("%llu bytes, blocks of %u\n", (unsigned long long)info.size_bytes, info.logical_block_bytes);
    must(qpair_device_close(device, &error), error);
    must(qpair_queue_close(queue, &error), error);
    return 0;
}
